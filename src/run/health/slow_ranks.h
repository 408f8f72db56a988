// SlowRanks measures this rank's own time of every step and reports ranks that have become slow, or are slow no more
// (run/health/stragglers.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/clock.h"
#include "run/health/stragglers.h"
#include "run/metrics.h"

namespace trifold {

class SlowRanks {
 public:
  // Compares every `interval` steps; 0, or a world of one rank: never, and the other functions do nothing that others
  // see. `groups`: as Stragglers takes them. `observer` is null on all ranks but 0. References must outlive the object.
  SlowRanks(Communicator& world, int64_t interval, std::vector<int> groups, SaveObserver* observer);

  void begin_step();
  // Collective in some steps.
  void end_step(int64_t step);

 private:
  std::optional<Stragglers> stragglers_;
  SaveObserver* observer_;
  int64_t blocked_ns_ = 0;  // time that this thread had waited when the step began
  Clock::time_point begun_;
};

}  // namespace trifold
