// A CUDA stream as a DeviceQueue.
//
// Tickets are numbers of recorded events. The events are a ring: where a ticket's event has been used again
// the newer one is waited for, which is as good, for a queue is in order and what was recorded later waits
// only for what was enqueued earlier.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "core/device.h"

namespace trifold::cuda {

class CudaDevice;

class CudaQueue final : public DeviceQueue {
 public:
  CudaQueue(CudaDevice& device, QueueUse use);
  // Waits for what is still enqueued.
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  CudaDevice& device() const { return device_; }
  void* native() override;
  uint64_t record() override;
  void wait(DeviceQueue& other, uint64_t ticket) override;
  void await(uint64_t ticket) override;
  void synchronize() override;
  void copy(void* to, const void* from, size_t bytes) override;
  void* workspace(size_t bytes) override;
  void check_launch(const char* what) override;
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  void launch(DeviceGraph& graph) override;

 private:
  static constexpr size_t kEvents = 256;
  // The event to wait for so that `ticket` is complete; null: nothing was ever recorded.
  void* event_of(uint64_t ticket);
  void release() noexcept;
  // What cannot be part of a graph.
  void refuse_in_capture(const char* what) const;

  CudaDevice& device_;
  const std::string name_;  // of the device
  void* stream_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  bool capturing_ = false;
  bool captured_ = false;
  std::vector<void*> retired_;  // workspaces that graphs may still use
  std::mutex mutex_;            // of what follows: other queues' threads look events up
  std::array<void*, kEvents> events_{};
  uint64_t recorded_ = 0;
};

}  // namespace trifold::cuda
