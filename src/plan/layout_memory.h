// LayoutMemory estimates the memory of the worst rank of a layout in microseconds (planned_ranks takes milliseconds to
// seconds), for a search over thousands of layouts of one model (plan/layout_search.h).
//
// It uses the same counting as a plan. The memory that a stage keeps for a micro-batch, and its weights, are
// extrapolated from dry runs of stages with few layers (plan/block_needs.h); the micro-batches in flight on a stage are
// counted in the rows of the schedule. Only two quantities are estimated: the messages in flight at once (the dry run
// of a whole plan counts them), and, if weights or gradients are sharded, the units in memory at one time. The error is
// a few percent (tests/unit/plan_layout_memory_test.cpp); the layouts that a search proposes are planned exactly.
//
// If `software` describes what another program keeps, its activations take the place of the dry runs (plan/program_needs.h),
// and the work space of Trifold's libraries is not counted.
#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include "config/fields/schedule.h"
#include "core/memo.h"
#include "layout/run_spec.h"
#include "plan/block_needs.h"
#include "plan/forecast/software.h"
#include "schedule/action.h"

namespace trifold {

// What each stage has.
struct StageCounts {
  std::vector<int> layers;
  std::vector<int>
      plain;  // of its layers, those without experts, where others have some; empty if there are none
  std::vector<int> heads;  // parts of the head; empty: all on the last stage
};

// The most micro-batches that a stage has in flight at once, and the most between I and W.
struct StageFlight {
  int stage = 0;
  int slots = 0;
  int pending = 0;
};
// A computation that changes what is in flight on a rank, at `place` among its stages.
struct FlightEvent {
  int place = 0;
  ActionKind kind = ActionKind::F;
};
struct ScheduleFlight {
  std::vector<std::vector<StageFlight>> ranks;   // [pipeline rank]
  std::vector<std::vector<FlightEvent>> events;  // [pipeline rank] in their order
  bool splits = false;                           // there are I and W
  bool whole = false;                            // there are B
};

ScheduleFlight flight_of(const Plan& plan);
// The flight of a synchronous schedule, in which micro-batches beyond a few times the ranks change nothing.
ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros);

// For layouts of one model. Thread-safe.
class LayoutMemory {
 public:
  explicit LayoutMemory(const Software& software = {}) : software_(software) {}

  // Bytes of the rank that needs most. `run` is resolved except for options that do not affect memory; all calls must
  // pass the same model. The schedule must be synchronous. BadInput if ZeRO cannot shard as the options request.
  size_t most_bytes(const RunSpec& run, const StageCounts& counts);
  // Without activations: at most as much, known without a dry run.
  size_t least_bytes(const RunSpec& run, const StageCounts& counts);
  // Of activations alone, on each pipeline rank.
  std::vector<double> activation_bytes(const RunSpec& run, const StageCounts& counts,
                                       const ScheduleFlight& flight);

 private:
  using FlightKey = std::tuple<Schedule, int, int, int>;

  const ScheduleFlight& flight(const RunSpec& run, int stages);
  size_t workspace(const RunSpec& run) const;

  Software software_;
  BlocksOfModel blocks_;
  Memo<FlightKey, ScheduleFlight> flights_;
};

}  // namespace trifold
