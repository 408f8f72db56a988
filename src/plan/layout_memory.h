// LayoutMemory estimates the memory of the worst rank of a layout in microseconds (plan_ranks takes milliseconds to
// seconds), for a search over thousands of layouts of one model (plan/layout_search.h).
//
// It uses the same counting as a plan. The memory that a stage keeps for a micro-batch is linear in its layers:
// RankLayout dry-runs three stages with one and with two layers, once for each tensor size, micro-batch and
// recomputation, and the rest is extrapolated; layers with experts and layers without are dry-run separately. The
// micro-batches in flight on a stage are counted in the rows of the schedule. Only two quantities are estimated: the messages in flight at once (the dry run of a whole plan counts
// them), and, if weights or gradients are sharded, the units in memory at one time. The error is a few percent
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
  double none = 0;   // for a stage without layers
  double layer = 0;  // added by each layer
  double of(double layers) const { return none + layers * layer; }
};

// Bytes, and elements of weights, those of experts among them.
struct StageNeeds {
  PerLayers keep, held, flow, scratch, weights, experts;
};

// Needs of the first stage with the embedding, a middle one, and the last with the head.
struct BlockNeeds {
  StageNeeds first, middle, last;
  double message = 0;  // bytes
  double tied = 0;     // elements of the weight that both ends share; 0: none
  int parts = 1;       // of the head, all of which `last` has

  // Needs of stage `index` of `stages`, which may be the only one, with `heads` parts of the head.
  StageNeeds stage(int index, int stages, int heads) const;
};

// The most micro-batches that a stage has in flight at once, and the most between I and W.
struct StageFlight {
  int stage = 0;
  int slots = 0;
  int pending = 0;
};
struct ScheduleFlight {
  std::vector<std::vector<StageFlight>> ranks;  // [pipeline rank]
  bool splits = false;                          // there are I and W
  bool whole = false;                           // there are B
};

ScheduleFlight flight_of(const Plan& plan);
// The same for a synchronous schedule, where micro-batches beyond a few times the ranks change nothing.
ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros);

class LayoutMemory {
 public:
  // Bytes of the rank that needs most. `run` is resolved except for options that do not affect memory; all calls must
  // pass the same model. `layers`: per stage; `plain`: those of them without experts, where others have some, and empty
  // if there are none; `heads`: parts of the head, all on the last stage if empty. The schedule must be synchronous.
  size_t most_bytes(const PretrainConfig& run, const std::vector<int>& layers,
                    const std::vector<int>& plain = {}, const std::vector<int>& heads = {});

 private:
  using BlockKey =
      std::tuple<int, int, int, int, int, ContextExchange, int64_t, bool, RecomputeGranularity, bool, bool>;
  using FlightKey = std::tuple<Schedule, int, int, int>;

  // Of a model whose layers are all like those with experts, or all `plain`.
  const BlockNeeds& blocks(const PretrainConfig& run, bool split, bool plain);
  const ScheduleFlight& flight(Schedule schedule, int ranks, int chunks, int micros);

  std::map<BlockKey, BlockNeeds> blocks_;
  std::map<FlightKey, ScheduleFlight> flights_;
};

}  // namespace trifold
