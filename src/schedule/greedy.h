// A plan made action by action: whenever a rank is free it takes the forward, the input gradient or the
// weight gradient that a few rules choose, at the times that given costs say (Qi et al., "Zero Bubble Pipeline
// Parallelism", 2023, section 3.1). automatic_schedule.h tries many rules.
#pragma once

#include <vector>

#include "schedule/action.h"
#include "schedule/simulate.h"

namespace trifold {

struct GreedyRules {
  // Forwards ahead of input gradients: rank r of p may have 1 + lead * (p - 1 - r) micro-batches between them.
  double lead = 1;
  // Weight gradients behind input gradients: rank r lets lag * r micro-batches wait before one is due at once.
  double lag = 1;
  // A weight gradient fills a wait that lasts at least this much of its own time.
  double gap = 0;
  // Of a forward and an input gradient that can both begin, the latter does.
  bool inputs_first = false;
};

struct GreedyTask {
  std::vector<std::vector<int>> stages;  // [rank][chunk] the stage, ascending on each rank
  int micros = 1;
  int max_kept = 1;  // inputs of stages that a rank keeps at once, at least one for each of its stages
  // Whether a forward waits for the inputs that later stages of the rank keep, too: the limit then holds on
  // every rank, which costs some orders their time.
  bool strict = false;
};

struct GreedyPlan {
  Plan plan;           // F, I and W
  double seconds = 0;  // until the last action ends, by the costs of stages and messages
};

// Deterministic. Of `cost` it reads f, i and w of every stage and what messages take.
GreedyPlan make_greedy(const GreedyTask& task, const CostModel& cost, const GreedyRules& rules);

}  // namespace trifold
