// Watchdog: calls a function on its own thread unless it is destroyed within a time-out.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "core/wait_clock.h"

namespace trifold {

class Watchdog {
 public:
  // Calls `late`, at most once, unless the Watchdog is destroyed before `timeout` (core/wait_clock.h).
  Watchdog(std::chrono::milliseconds timeout, std::function<void()> late)
      : thread_([this, timeout, late = std::move(late)] {
          std::unique_lock lock(mutex_);
          if (!wait_for(changed_, lock, timeout, [this] { return done_; })) late();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace trifold
