// A CUDA device as a Device, with queues that are CUDA streams. Nothing here includes CUDA's headers.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>

#include "core/device.h"

namespace trifold::cuda {

// The number of devices this process can use. Throws an Error(BadInput) that says what is missing (a driver,
// a recent enough driver, a device) if there is none.
int device_count();

// Total memory of device `index`, in bytes. Creates no context, which would itself take memory of the device.
size_t device_memory(int index);

// The properties of a device that attention and matrix products depend on.
struct Properties {
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int multiprocessors = 0;
};

class CudaDevice final : public Device {
 public:
  // Throws when there is no such device.
  explicit CudaDevice(int index);

  int index() const { return index_; }
  const Properties& properties() const { return properties_; }
  // Makes this device the calling thread's current one.
  void use() const;

  std::string name() const override;
  DeviceMemory memory() const override;
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_shared(size_t bytes) override;
  void release_shared(void* memory) noexcept override;
  std::unique_ptr<DeviceQueue> make_queue(QueueUse use) override;

  // The capturing thread calls these before and after a capture on any of the device's streams. In between, no thread
  // may synchronize the whole device.
  void capture_begins();
  void capture_ended();

 private:
  std::shared_mutex captures_;  // shared by captures, exclusive for synchronizing the device
  int index_;
  Properties properties_;
};

}  // namespace trifold::cuda
