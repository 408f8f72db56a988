// LayoutMemory estimates the memory of the worst rank of a layout in microseconds (planned_ranks takes milliseconds to
// seconds), for a search over thousands of layouts of one model (plan/layout_search.h).
//
// It counts as a plan does. The memory that a stage keeps for a micro-batch, and its weights, are extrapolated from dry
// runs of stages with few layers (plan/block_needs.h); the micro-batches in flight on a stage are counted in the
// schedule's rows. Two quantities are estimates: the number of messages in flight, which only the dry run of a whole
// plan counts, and, if weights or gradients are sharded, the number of units in memory at once. The error is a few
// percent (tests/unit/plan_layout_memory_test.cpp); layouts that a search proposes are planned exactly.
//
// If `software` describes another program's memory, the activations of that program replace the dry runs
// (plan/program_needs.h), and the workspace of Trifold's libraries is not counted.
#pragma once

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "config/fields/schedule.h"
#include "core/memo.h"
#include "layout/run_spec.h"
#include "models/stage_cut.h"
#include "plan/block_needs.h"
#include "plan/forecast/software.h"
#include "plan/schedule_flight.h"

namespace trifold {

// Estimates for layouts of one model. Thread-safe.
class LayoutMemory {
 public:
  explicit LayoutMemory(const Software& software = {}) : software_(software) {}

  // Bytes on the rank that needs most. `run` is resolved except for options that do not affect memory; all calls must
  // pass the same model. The schedule must be synchronous. BadInput if ZeRO cannot shard as the options request.
  size_t most_bytes(const RunSpec& run, const StageCounts& counts);
  // A lower bound of most_bytes that needs no dry run: the bytes without activations.
  size_t least_bytes(const RunSpec& run, const StageCounts& counts);
  // Bytes of activations on each pipeline rank.
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
