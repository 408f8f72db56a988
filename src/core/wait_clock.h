// WaitClock: a time-out that counts only the time during which this process ran.
//
// A process that was stopped (SIGSTOP, a suspended machine, a debugger) finds on resuming that much time has
// passed, although the ranks it waits for may have been stopped with it. A wait therefore reads its clock
// every `poll()`; a gap between two readings counts for at most `10 * poll()`.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "core/clock.h"

namespace trifold {

class WaitClock {
 public:
  explicit WaitClock(std::chrono::milliseconds limit)
      : limit_(limit),
        poll_(std::clamp(limit / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(100))),
        last_(Clock::now()),
        end_(limit) {}

  std::chrono::milliseconds limit() const { return limit_; }
  // The longest time to leave between two calls of `expired`.
  std::chrono::milliseconds poll() const { return poll_; }

  // Adds the time since the last call; true once the limit has been reached.
  bool expired() { return expired(Clock::now()); }
  bool expired(Clock::time_point now) {
    waited_ += std::min<Clock::duration>(now - last_, 10 * poll_);
    last_ = now;
    return waited_ >= end_;
  }
  // After expiry: grants another limit, up to `most` in all. False if `most` has been used up.
  bool extend(std::chrono::milliseconds most) {
    if (waited_ >= most) return false;
    end_ = std::min<Clock::duration>(waited_ + limit_, most);
    return true;
  }
  // Seconds since the clock was last read if that is so long that the waiting thread is stopped; otherwise 0.
  double stopped() const {
    const auto gap = Clock::now() - last_;
    return gap > 10 * poll_ ? std::chrono::duration<double>(gap).count() : 0;
  }
  // The time counted so far, in seconds.
  double waited() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  std::chrono::milliseconds limit_, poll_;
  Clock::time_point last_;
  Clock::duration waited_{0};
  Clock::duration end_;
};

// std::condition_variable::wait_for with the time-out of a WaitClock.
template <class Ready>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              std::chrono::milliseconds limit, Ready ready) {
  WaitClock clock(limit);
  while (!changed.wait_for(lock, clock.poll(), ready))
    if (clock.expired()) return false;
  return true;
}

}  // namespace trifold
