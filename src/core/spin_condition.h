// SpinCondition: a condition variable for conditions on atomics. A waiting thread spins for a moment, because the
// operations of a training step follow each other within microseconds, and then sleeps.
//
// Unlike std::atomic::wait, it never yields its core before it sleeps: on a machine that runs other programs too, a
// yielded core is lost for a whole time slice, a thousand times the length of an operation.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/function_ref.h"

namespace trifold {

// Polls `ready` for at most `limit` and returns whether it became true. Does not yield the core.
bool spin(std::chrono::microseconds limit, FunctionRef<bool()> ready);

class SpinCondition {
 public:
  // Returns once `ready` is true; it may be called with a lock held. It reads atomics, in sequentially consistent
  // order.
  void wait(FunctionRef<bool()> ready);

  // Wakes sleeping threads. Call it after changing an atomic in sequentially consistent order. Costs one load if no
  // thread sleeps.
  void notify_all();

 private:
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace trifold
