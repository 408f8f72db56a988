// LayoutMemory: what the worst rank of a layout needs, in microseconds instead of the milliseconds to seconds
// of plan_ranks, for a search that looks at thousands of layouts of one model (plan/layout_search.h).
//
// Nothing is modelled anew. What a stage keeps for a micro-batch grows by the same bytes with each of its
// layers: RankLayout walks three stages of one and of two layers dry, once for each tensor size, micro-batch
// and way of keeping, and the rest follows. How many micro-batches a stage has in flight is counted in the
// rows of the schedule. Estimated are the messages under way at once (the walk of a whole plan counts them)
// and, where weights or gradients come and go, which units are in memory at one time. That is a few percent
// (tests/unit/plan_layout_memory_test.cpp); the layouts that a search proposes are planned exactly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "config/fields/config.h"
#include "config/fields/schedule.h"
#include "schedule/action.h"

namespace trifold {

// A quantity of a stage with n layers.
struct PerLayers {
  double none = 0;   // of a stage without layers
  double layer = 0;  // what each adds
  double of(double layers) const { return none + layers * layer; }
};

// Bytes, and elements of weights.
struct StageNeeds {
  PerLayers keep, held, flow, scratch, weights;
};

// Of the first stage with the embedding, one in the middle, and the last with the head.
struct BlockNeeds {
  StageNeeds first, middle, last;
  double message = 0;  // bytes
  double tied = 0;     // elements of the weight that the ends share; 0: none

  // Of stage `index` of `stages`, which may be the only one.
  StageNeeds stage(int index, int stages) const;
};

// The most micro-batches that a stage has in flight, and between I and W, at once.
struct StageFlight {
  int stage = 0;
  int slots = 0;
  int helds = 0;
};
struct ScheduleFlight {
  std::vector<std::vector<StageFlight>> ranks;  // [pipeline rank]
  bool splits = false;                          // there are I and W
  bool whole = false;                           // there are B
};

ScheduleFlight flight_of(const Plan& plan);
// The same of a synchronous schedule, in which micro-batches beyond a few times the ranks change nothing.
ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros);

class LayoutMemory {
 public:
  // Bytes of the rank that needs most. `run` is resolved but for options that do not matter to memory; all
  // calls give the same model. `layers`: of each stage. The schedule must be synchronous.
  size_t most_bytes(const PretrainConfig& run, const std::vector<int>& layers);

 private:
  using BlockKey = std::tuple<int, int, int64_t, bool, RecomputeGranularity, bool>;
  using FlightKey = std::tuple<Schedule, int, int, int>;

  const BlockNeeds& blocks(const PretrainConfig& run, bool split);
  const ScheduleFlight& flight(Schedule schedule, int ranks, int chunks, int micros);

  std::map<BlockKey, BlockNeeds> blocks_;
  std::map<FlightKey, ScheduleFlight> flights_;
};

}  // namespace trifold
