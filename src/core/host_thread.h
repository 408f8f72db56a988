// HostThread: whether the thread that runs a rank is held up by others: other ranks, or streams that may wait
// for them. A rank whose thread is not held up is the one that the others wait for, whatever its streams do.
#pragma once

#include <atomic>
#include <memory>

namespace trifold {

struct HostThread {
  std::atomic<int> waits{0};

  // That of the calling thread.
  static const std::shared_ptr<HostThread>& here() {
    static thread_local const std::shared_ptr<HostThread> kMine = std::make_shared<HostThread>();
    return kMine;
  }
};

// While it lives, `thread` is held up; null: nobody is.
class HeldUp {
 public:
  explicit HeldUp(HostThread* thread = HostThread::here().get()) : thread_(thread) {
    if (thread_ != nullptr) thread_->waits.fetch_add(1, std::memory_order_relaxed);
  }
  ~HeldUp() {
    if (thread_ != nullptr) thread_->waits.fetch_sub(1, std::memory_order_relaxed);
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

 private:
  HostThread* thread_;
};

}  // namespace trifold
