// A make-believe device: memory that the host cannot touch and queues that run behind its back, made of the
// processor. What is right on it reads and writes a device's tensors through operations and copies alone, and
// orders them by streams and events alone. Its arithmetic is the processor's, so runs must give the same
// bits.
//
// An allocation is one piece of memory mapped twice: under the address that everyone is given it may not be
// touched at all; the device uses the other.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "core/stream.h"
#include "core/tensor.h"

namespace trifold::test {

class MakeBelieveQueue;

class MakeBelieveDevice final : public Device {
 public:
  std::string name() const override { return "make-believe:0"; }
  DeviceMemory memory() const override { return {size_t{1} << 30, size_t{1} << 30}; }
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_shared(size_t bytes) override;
  void release_shared(void* memory) noexcept override;
  std::unique_ptr<DeviceQueue> make_queue() override;

  // The tensor where the device itself reads it. Throws for memory that the device cannot reach.
  Tensor real(Tensor tensor) const;
  // The same for an address; null where it is ordinary host memory.
  void* real(const void* address) const;

 private:
  friend class MakeBelieveQueue;
  struct Block {
    size_t bytes;
    std::byte* own;  // the address under which the device uses it
  };
  void wait_for_queues() noexcept;

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by the address that was given out
  std::set<MakeBelieveQueue*> queues_;
};

class MakeBelieveQueue final : public DeviceQueue {
 public:
  explicit MakeBelieveQueue(MakeBelieveDevice& device);
  ~MakeBelieveQueue() override;
  MakeBelieveQueue(const MakeBelieveQueue&) = delete;
  MakeBelieveQueue& operator=(const MakeBelieveQueue&) = delete;

  MakeBelieveDevice& device() { return device_; }
  // Where the device's work runs.
  Stream& worker() { return worker_; }

  void* native() override { return &worker_; }
  uint64_t record() override { return worker_.record().ticket; }
  void wait(DeviceQueue& other, uint64_t ticket) override;
  void await(uint64_t ticket) override;
  void synchronize() override { worker_.synchronize(); }
  void copy(void* to, const void* from, size_t bytes) override;
  void* workspace(size_t bytes) override;
  void check_launch(const char* /*what*/) override {}

 private:
  MakeBelieveDevice& device_;
  ThreadPool pool_{1};
  Stream worker_{Stream::Mode::Worker, pool_};
  Buffer workspace_;
};

}  // namespace trifold::test
