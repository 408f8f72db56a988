// A CUDA device as a Device, with queues that are CUDA streams. Nothing here includes CUDA's headers.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>

#include "core/device.h"

namespace trifold::cuda {

// How many devices this process can use. Throws an Error(BadInput) that says what is missing when there is
// none: no driver, a driver that is too old, no device.
int device_count();

// Bytes of memory of device `index`. Opens no context there, which would take some of it.
size_t device_memory(int index);

// What attention and products need to know of a device.
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

  // Around a capture on any of its streams, by the same thread: the device as a whole must not be waited for
  // meanwhile.
  void capture_begins();
  void capture_ended();

 private:
  std::shared_mutex captures_;  // shared by captures, exclusive for who waits for the device
  int index_;
  Properties properties_;
};

}  // namespace trifold::cuda
