// The clock used to measure durations.
#pragma once

#include <chrono>

namespace trifold {

using Clock = std::chrono::steady_clock;

// Two readings of the clock.
struct ClockSpan {
  Clock::time_point begin, end;
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace trifold
