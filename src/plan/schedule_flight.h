// The micro-batches in flight on the stages of a schedule, of which memory is a multiple (plan/layout_memory.h).
#pragma once

#include <vector>

#include "config/fields/schedule.h"
#include "schedule/action.h"

namespace trifold {

// The largest numbers of micro-batches in flight on a stage (`slots`), and of micro-batches between I and W
// (`pending`).
struct StageFlight {
  int stage = 0;
  int slots = 0;
  int pending = 0;
};
// A computation that changes the micro-batches in flight on a rank; `chunk` is the index of its stage among the rank's
// stages.
struct InFlightEvent {
  int chunk = 0;
  ActionKind kind = ActionKind::F;
};
struct ScheduleFlight {
  std::vector<std::vector<StageFlight>> ranks;     // [pipeline rank]
  std::vector<std::vector<InFlightEvent>> events;  // [pipeline rank], in execution order
  bool splits = false;                             // the schedule has I and W
  bool whole = false;                              // the schedule has B
};

ScheduleFlight flight_of(const Plan& plan);
// The flight of a synchronous schedule. `micros` may be large: beyond a few times the ranks, more micro-batches change
// nothing, and are not generated.
ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros);

}  // namespace trifold
