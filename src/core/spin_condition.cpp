#include "core/spin_condition.h"

#include "core/clock.h"

namespace trifold {

namespace {

// Longer than the gap between two operations of a step, too short to be noticed. A duration instead of a
// count, because a pause takes 10 to 50 nanoseconds, depending on the processor.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerLook = 16;  // between two looks at the clock

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");  // to the other threads of this core; the system is not called
#endif
}

}  // namespace

bool spin(std::chrono::microseconds limit, FunctionRef<bool()> ready) {
  const auto end = Clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return ready();
}

void SpinCondition::wait(FunctionRef<bool()> ready) {
  if (spin(kSpin, ready)) return;
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  while (!ready()) changed_.wait(lock);
  sleepers_.fetch_sub(1);
}

void SpinCondition::notify_all() {
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace trifold
