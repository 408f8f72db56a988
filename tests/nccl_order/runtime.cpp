#include "nccl_order/runtime.h"

#include <atomic>
#include <memory>

#include "comm/cuda/nccl_comm.h"
#include "core/cuda/cuda_device.h"
#include "core/error.h"

// An event: how often it was recorded, and which of these the stream has passed.
struct CUevent_st {
  struct State {
    std::atomic<uint64_t> recorded{0}, passed{0};
  };
  std::shared_ptr<State> state = std::make_shared<State>();  // streams hold it beyond the event
};

namespace trifold::test {

void launch(cudaStream_t stream, std::function<void()> work) {
  FakeDeviceQueue& queue = queue_of(stream);
  queue.put([&queue, work = std::move(work)] { queue.worker().run(work); });
}

}  // namespace trifold::test

extern "C" {

cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "an error of the pretended runtime"; }
const char* cudaGetErrorName(cudaError_t /*error*/) { return "pretended"; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const uint64_t number = ++event->state->recorded;
  trifold::test::launch(stream, [state = event->state, number] { state->passed = number; });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->state->passed == event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}
}

// The parts of a device of CUDA that NCCL's communicators use; its memory and queues are a FakeDevice's.
namespace trifold::cuda {

CudaDevice::CudaDevice(int index) : index_(index), properties_{"a fake device", 9, 0, 1} {}
void CudaDevice::use() const {}
std::string CudaDevice::name() const { return fmt::format("fake:{}", index_); }
DeviceMemory CudaDevice::memory() const { return {}; }
void* CudaDevice::allocate(size_t bytes) { fail("{} bytes asked of a device without memory", bytes); }
void CudaDevice::release(void* /*memory*/) noexcept {}
void* CudaDevice::allocate_shared(size_t bytes) {
  fail("{} shared bytes asked of a device without memory", bytes);
}
void CudaDevice::release_shared(void* /*memory*/) noexcept {}
std::unique_ptr<DeviceQueue> CudaDevice::make_queue(QueueUse /*use*/) {
  fail("a queue asked of a device without queues");
}

}  // namespace trifold::cuda

extern "C" trifold::Communicator* trifold_cuda_connect_nccl(trifold::Communicator* host, int device,
                                                            int64_t timeout_ms) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<trifold::cuda::CudaDevice>>();
  trifold::cuda::CudaDevice* mine = nullptr;
  {
    const std::lock_guard lock(mutex);
    auto& made = devices[device];
    if (made == nullptr) made = std::make_unique<trifold::cuda::CudaDevice>(device);
    mine = made.get();
  }
  return trifold::cuda::connect_nccl(*host, *mine, std::chrono::milliseconds(timeout_ms)).release();
}
