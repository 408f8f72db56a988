// A CUDA stream as a DeviceQueue.
//
// A ticket is the index of a recorded event; the events form a ring. If a ticket's event has been reused,
// waiters wait for the newer event. That is safe, because the queue is in order and the newer event depends
// only on work that was enqueued before it.
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
  // Waits for all enqueued work.
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
  // The event that completes `ticket`; null for ticket 0, which stands for no work.
  void* event_of(uint64_t ticket);
  void release() noexcept;
  // Throws during a capture; `what` names the call that a graph cannot contain.
  void refuse_in_capture(const char* what) const;

  CudaDevice& device_;
  const std::string name_;  // the device's name
  void* stream_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  bool capturing_ = false;
  bool captured_ = false;
  std::vector<void*> retired_;  // workspaces that graphs may still use
  std::mutex mutex_;            // guards the members below: the threads of other queues look events up
  std::array<void*, kEvents> events_{};
  uint64_t recorded_ = 0;
};

}  // namespace trifold::cuda
