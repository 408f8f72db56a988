#include "core/cuda/cuda_queue.h"

#include <utility>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_error.cuh"

namespace trifold::cuda {

namespace {

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_as(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

CudaQueue::CudaQueue(CudaDevice& device) : device_(device) {
  device_.use();
  cudaStream_t stream = nullptr;
  // Non-blocking: without order against the default stream, which nothing here uses.
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream on {}",
             device_.name());
  stream_ = stream;
  try {
    for (void*& slot : events_) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
                 "making an event on {}", device_.name());
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
  static_cast<void>(cudaStreamDestroy(stream_of(stream_)));
}

void* CudaQueue::native() {
  device_.use();
  return stream_;
}

uint64_t CudaQueue::record() {
  device_.use();
  const std::lock_guard lock(mutex_);
  void* event = events_[(recorded_ + 1) % kEvents];
  check_cuda(cudaEventRecord(event_as(event), stream_of(stream_)), "recording an event on {}",
             device_.name());
  return ++recorded_;
}

void* CudaQueue::event_of(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  check(ticket <= recorded_, "event {} was never recorded on {}", ticket, device_.name());
  return ticket == 0 ? nullptr : events_[ticket % kEvents];
}

void CudaQueue::wait(DeviceQueue& other, uint64_t ticket) {
  void* event = static_cast<CudaQueue&>(other).event_of(ticket);
  if (event == nullptr) return;
  device_.use();
  check_cuda(cudaStreamWaitEvent(stream_of(stream_), event_as(event), 0), "waiting for another stream on {}",
             device_.name());
}

void CudaQueue::await(uint64_t ticket) {
  void* event = event_of(ticket);
  if (event == nullptr) return;
  device_.use();
  check_cuda(cudaEventSynchronize(event_as(event)), "waiting for work on {}", device_.name());
}

void CudaQueue::synchronize() {
  device_.use();
  check_cuda(cudaStreamSynchronize(stream_of(stream_)), "waiting for work on {}", device_.name());
}

void CudaQueue::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  device_.use();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream_)),
             "copying {} bytes on {}", bytes, device_.name());
}

// It only grows, and cudaFree waits for the device, so nothing loses memory that it still uses.
void* CudaQueue::workspace(size_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_;
  device_.release(std::exchange(workspace_, nullptr));
  workspace_bytes_ = 0;
  workspace_ = device_.allocate(bytes);
  workspace_bytes_ = bytes;
  return workspace_;
}

void CudaQueue::check_launch(const char* what) {
  check_cuda(cudaGetLastError(), "starting {} on {}", what, device_.name());
}

}  // namespace trifold::cuda
