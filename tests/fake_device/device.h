// A fake device: memory that the host cannot touch and queues that run asynchronously, implemented on the
// processor. Code that works on it accesses a device's tensors only through operations and copies, and orders them only
// by streams and events. Its arithmetic is the processor's, so runs must give the same bits.
//
// As with CUDA, a thread must not allocate during capture.
//
// An allocation is mapped twice: at the published address it is inaccessible; the device uses the other address.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace trifold::test {

class FakeDevice;
class FakeDeviceQueue;

// Observes how queues and the host wait for each other. Called by the thread that enqueues or waits, before it waits.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  virtual void on_record(FakeDeviceQueue& queue, uint64_t ticket) = 0;
  // `queue` waits for `ticket` of `other`.
  virtual void on_wait(FakeDeviceQueue& queue, FakeDeviceQueue& other, uint64_t ticket) = 0;
  // The host waits for `ticket` of the queue, or (the second) for all its work.
  virtual void on_await(FakeDeviceQueue& queue, uint64_t ticket) = 0;
  virtual void on_synchronize(FakeDeviceQueue& queue) = 0;
  // The queue is destroyed; another may get its address.
  virtual void on_end(FakeDeviceQueue& queue) = 0;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(int index = 0) : index_(index) {}

  int index() const { return index_; }
  std::string name() const override { return "fake:" + std::to_string(index_); }
  // Of all devices; null: none. It must outlive their queues.
  static void watch(DeviceWatch* watch);
  DeviceMemory memory() const override { return {size_t{1} << 30, size_t{1} << 30}; }
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_shared(size_t bytes) override;
  void release_shared(void* memory) noexcept override;
  std::unique_ptr<DeviceQueue> make_queue(QueueUse use) override;

  // The calling thread's `capture`-th capture from now (1: the next) fails at the `piece`-th piece of work (1: the
  // first), or at its end if it has fewer pieces or `piece` is 0. `capture` 0: none fails.
  static void refuse_capture(int64_t capture, int64_t piece);

  // Times that graphs were launched, on all queues.
  int64_t graph_launches() const { return graph_launches_; }
  // Requests so far, and bytes not yet freed.
  struct Asked {
    int64_t times = 0;
    size_t device = 0, shared = 0;
    int64_t workspaces = 0;  // times that one was allocated or grew
    int64_t captures = 0;    // graphs captured
    int64_t urgent = 0;      // queues made for communication
  };
  Asked asked() const;

  // The tensor where the device itself reads it. Throws for memory that the device cannot reach.
  Tensor real(Tensor tensor) const;
  // The same for an address; null for ordinary host memory.
  void* real(const void* address) const;

 private:
  friend class FakeDeviceQueue;
  struct Block {
    size_t bytes;
    std::byte* own;  // the address under which the device uses it
    bool shared;
  };
  void keep(std::byte* shown, const Block& block);
  void wait_for_queues() noexcept;

  const int index_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by published address
  int64_t asked_ = 0;                         // times
  std::set<FakeDeviceQueue*> queues_;
  std::atomic<int64_t> graph_launches_ = 0, workspaces_ = 0, captures_ = 0, urgent_queues_ = 0;
};

class FakeDeviceQueue final : public DeviceQueue {
 public:
  explicit FakeDeviceQueue(FakeDevice& device);
  ~FakeDeviceQueue() override;
  FakeDeviceQueue(const FakeDeviceQueue&) = delete;
  FakeDeviceQueue& operator=(const FakeDeviceQueue&) = delete;

  FakeDevice& device() { return device_; }
  // The stream on which the device's work runs.
  Stream& worker() { return worker_; }
  // Enqueues `work` on the device, or records it for a graph.
  void put(std::function<void()> work);

  void* native() override { return this; }
  uint64_t record() override;
  void wait(DeviceQueue& other, uint64_t ticket) override;
  void await(uint64_t ticket) override;
  void synchronize() override;
  void copy(void* to, const void* from, size_t bytes) override;
  void* workspace(size_t bytes) override;
  void check_launch(const char* /*what*/) override {}
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  void launch(DeviceGraph& graph) override;

 private:
  void refuse_in_capture(const char* what) const;

  FakeDevice& device_;
  ThreadPool pool_{1};
  Stream worker_{Stream::Mode::Worker, pool_};
  std::vector<Buffer> workspaces_;  // the last one is current; earlier ones are kept for graphs
  bool wrote_graphs_ = false;
  bool capturing_ = false;
  std::vector<std::function<void()>> captured_;
};

}  // namespace trifold::test
