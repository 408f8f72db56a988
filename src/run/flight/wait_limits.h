// WaitLimits learns how long the parts of a run usually take, and sets the time-out of waits for other ranks to a
// multiple of that.
//
// A part's time-out is --timeout-factor times the longest of its last durations, at least --timeout-floor-seconds, and
// never more than --distributed-timeout-minutes, which alone applies to a part that has not occurred often enough.
// Ranks do not pass from part to part at the same moment, so that a wait has the longer one of the time-outs of its
// part and of the part before it. Between parts, and for saves in the background, the longest one applies.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "core/clock.h"
#include "core/flight/flight_recorder.h"
#include "run/probe.h"

namespace trifold {

class WaitLimits {
 public:
  // `recorder` may be null, and must outlive this object. No limit applies after its destruction.
  WaitLimits(FlightRecorder* recorder, const WatchConfig& config);
  ~WaitLimits();
  WaitLimits(const WaitLimits&) = delete;
  WaitLimits& operator=(const WaitLimits&) = delete;

  void begin(RunPart part);
  // Ends the part that began last. Durations of parts that an exception ends do not count.
  void end();

  // The time-out of a part, if one has been learned.
  std::optional<std::chrono::milliseconds> learned(RunPart part) const;

 private:
  // The last durations of a part, in seconds, a ring.
  struct Durations {
    std::vector<double> last;
    size_t count = 0;
  };
  static constexpr size_t kKept = 64;
  static constexpr size_t kParts = 5;

  Durations& of(RunPart part) { return durations_.at(static_cast<size_t>(part)); }

  FlightRecorder* recorder_;
  double factor_, floor_seconds_;
  std::array<Durations, kParts> durations_;
  RunPart part_ = RunPart::Load;
  RunPart before_ = RunPart::Load;
  Clock::time_point begun_ = Clock::now();
};

}  // namespace trifold
