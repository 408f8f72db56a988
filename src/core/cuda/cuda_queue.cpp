#include "core/cuda/cuda_queue.h"

#include <utility>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_error.cuh"

namespace trifold::cuda {

namespace {

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_as(void* event) { return static_cast<cudaEvent_t>(event); }

// An executable graph. It may be destroyed while a launch runs: CUDA frees it when the launch has ended.
class CudaGraph final : public DeviceGraph {
 public:
  // Uploads the graph, which takes its device memory now: if there is none, the constructor throws, and the
  // work can still be launched piece by piece. Otherwise the first launch would fail.
  CudaGraph(cudaGraph_t nodes, cudaStream_t stream) {
    check_cuda(cudaGraphInstantiateWithFlags(&exec_, nodes, 0), "making captured work executable");
    const cudaError_t status = cudaGraphUpload(exec_, stream);
    if (status != cudaSuccess) static_cast<void>(cudaGraphExecDestroy(exec_));
    check_cuda(status, "putting captured work on the device");
  }
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(exec_)); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t get() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

CudaQueue::CudaQueue(CudaDevice& device, QueueUse use) : device_(device), name_(device.name()) {
  device_.use();
  cudaStream_t stream = nullptr;
  int usual = 0, first = 0;  // priorities; lower numbers go first
  check_cuda(cudaDeviceGetStreamPriorityRange(&usual, &first), "asking {} for its priorities", name_);
  // Non-blocking: not ordered against the default stream, which nothing here uses.
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          use == QueueUse::Communicating ? first : usual),
             "making a stream on {}", name_);
  stream_ = stream;
  try {
    for (void*& slot : events_) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
                 "making an event on {}", name_);
      slot = event;
    }
  } catch (...) {
    release();
    throw;
  }
}

CudaQueue::~CudaQueue() {
  static_cast<void>(cudaSetDevice(device_.index()));
  static_cast<void>(cudaStreamSynchronize(stream_of(stream_)));
  release();
}

void CudaQueue::release() noexcept {
  for (void* event : events_)
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event_as(event)));
  static_cast<void>(cudaFree(workspace_));
  for (void* memory : retired_) static_cast<void>(cudaFree(memory));
  static_cast<void>(cudaStreamDestroy(stream_of(stream_)));
}

void* CudaQueue::native() {
  device_.use();
  return stream_;
}

void CudaQueue::refuse_in_capture(const char* what) const {
  check(!capturing_, "{} cannot be part of a graph", what);
}

uint64_t CudaQueue::record() {
  refuse_in_capture("an event for others to wait for");
  device_.use();
  const std::lock_guard lock(mutex_);
  void* event = events_[(recorded_ + 1) % kEvents];
  check_cuda(cudaEventRecord(event_as(event), stream_of(stream_)), "recording an event on {}", name_);
  return ++recorded_;
}

void* CudaQueue::event_of(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  check(ticket <= recorded_, "event {} was never recorded on {}", ticket, name_);
  return ticket == 0 ? nullptr : events_[ticket % kEvents];
}

void CudaQueue::wait(DeviceQueue& other, uint64_t ticket) {
  refuse_in_capture("waiting for another stream");
  void* event = static_cast<CudaQueue&>(other).event_of(ticket);
  if (event == nullptr) return;
  device_.use();
  check_cuda(cudaStreamWaitEvent(stream_of(stream_), event_as(event), 0), "waiting for another stream on {}",
             name_);
}

void CudaQueue::await(uint64_t ticket) {
  void* event = event_of(ticket);
  if (event == nullptr) return;
  device_.use();
  check_cuda(cudaEventSynchronize(event_as(event)), "waiting for work on {}", name_);
}

void CudaQueue::synchronize() {
  refuse_in_capture("work of the host");
  device_.use();
  check_cuda(cudaStreamSynchronize(stream_of(stream_)), "waiting for work on {}", name_);
}

void CudaQueue::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  device_.use();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream_)),
             "copying {} bytes on {}", bytes, name_);
}

// The workspace only grows. cudaFree waits for the device, so no enqueued work loses its memory. Graphs keep
// the address that they were captured with.
void* CudaQueue::workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_;
  refuse_in_capture("a workspace larger than any before");
  if (captured_)
    retired_.push_back(std::exchange(workspace_, nullptr));
  else
    device_.release(std::exchange(workspace_, nullptr));
  workspace_bytes_ = 0;
  workspace_ = device_.allocate(bytes);
  workspace_bytes_ = bytes;
  return workspace_;
}

void CudaQueue::check_launch(const char* what) {
  check_cuda(cudaGetLastError(), "starting {} on {}", what, name_);
}

// Thread-local mode: other threads may allocate and wait during the capture.
void CudaQueue::begin_capture() {
  refuse_in_capture("another capture");
  device_.use();
  device_.capture_begins();
  const cudaError_t status = cudaStreamBeginCapture(stream_of(stream_), cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) device_.capture_ended();
  check_cuda(status, "beginning to capture work on {}", name_);
  capturing_ = captured_ = true;
}

std::unique_ptr<DeviceGraph> CudaQueue::end_capture() {
  check(capturing_, "a capture ends that has not begun");
  capturing_ = false;
  device_.use();
  cudaGraph_t nodes = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream_of(stream_), &nodes);
  device_.capture_ended();
  check_cuda(status, "capturing work on {}", name_);
  const auto destroy = [](cudaGraph_t graph) { static_cast<void>(cudaGraphDestroy(graph)); };
  const std::unique_ptr<CUgraph_st, decltype(destroy)> held(nodes, destroy);
  return std::make_unique<CudaGraph>(nodes, stream_of(stream_));
}

void CudaQueue::launch(DeviceGraph& graph) {
  refuse_in_capture("another graph");
  device_.use();
  check_cuda(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_of(stream_)),
             "launching a graph on {}", name_);
}

}  // namespace trifold::cuda
