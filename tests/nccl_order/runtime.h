// A pretended CUDA runtime: the few calls that the code over NCCL makes, on queues of fake devices. A cudaStream_t is the
// address of a FakeDeviceQueue (FakeDeviceQueue::native).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "fake_device/device.h"

namespace trifold::test {

inline FakeDeviceQueue& queue_of(cudaStream_t stream) {
  return *static_cast<FakeDeviceQueue*>(static_cast<void*>(stream));
}

// Enqueues work of the device itself.
void launch(cudaStream_t stream, std::function<void()> work);

}  // namespace trifold::test
