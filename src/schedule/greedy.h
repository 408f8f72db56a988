// A plan made action by action: whenever a rank is free, a few rules choose a forward, an input gradient or a
// weight gradient, at the times that follow from given costs (Qi et al., "Zero Bubble Pipeline Parallelism",
// 2023, section 3.1). automatic.h tries many rules.
#pragma once

#include <vector>

#include "schedule/action.h"
#include "schedule/simulate.h"

namespace trifold {

struct GreedyRules {
  // How far forwards may be ahead of input gradients: rank r of p may have 1 + lead * (p - 1 - r)
  // micro-batches between them.
  double lead = 1;
  // How far weight gradients may lag behind input gradients: on rank r, lag * r micro-batches may wait before
  // one must run at once.
  double lag = 1;
  // A weight gradient fills a wait that lasts at least this fraction of its own time.
  double gap = 0;
  // If both a forward and an input gradient can begin, the input gradient does.
  bool inputs_first = false;
};

struct GreedyTask {
  std::vector<std::vector<int>> stages;  // [rank][chunk] the stage, ascending on each rank
  int micros = 1;
  int max_kept = 1;  // inputs of stages that a rank may keep at once, at least one for each of its stages
  // Whether the inputs kept by later stages of the rank count against a forward too: then the limit holds on
  // every rank, which makes some orders slower.
  bool strict = false;
};

struct GreedyPlan {
  Plan plan;           // F, I and W
  double seconds = 0;  // until the last action ends, with the costs of stages and messages
};

// Deterministic. Reads from `cost` the f, i and w of every stage, and the costs of messages.
GreedyPlan make_greedy(const GreedyTask& task, const CostModel& cost, const GreedyRules& rules);

}  // namespace trifold
