// Makes a plan action by action: whenever a rank is free, a few rules choose a forward, an input gradient or a weight
// gradient, at the times that follow from given costs (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, section
// 3.1). automatic.h tries many rules.
#pragma once

#include <vector>

#include "schedule/action.h"
#include "schedule/simulate.h"

namespace trifold {

struct GreedyRules {
  // The lead of forwards over input gradients: rank r of p may have 1 + lead * (p - 1 - r) micro-batches between them.
  double lead = 1;
  // The lag of weight gradients behind input gradients: on rank r, lag * r micro-batches may wait before one must run
  // at once.
  double lag = 1;
  // A weight gradient fills a wait that lasts at least this fraction of its own time.
  double gap = 0;
  // If both a forward and an input gradient can begin, the input gradient does.
  bool inputs_first = false;
};

struct GreedyTask {
  std::vector<std::vector<int>> stages;  // [rank][chunk] stage numbers, ascending on each rank
  int micros = 1;
  int max_kept = 1;  // stage inputs that a rank may keep at once, at least one per stage
  // Whether inputs kept by later stages of the rank also count against a forward. The limit then holds on every rank,
  // but some orders become slower.
  bool strict = false;
};

struct GreedyPlan {
  Plan plan;           // F, I and W
  double seconds = 0;  // end of the last action, with the costs of stages and messages
};

// Deterministic. Reads the f, i and w of every stage and the costs of messages from `cost`.
GreedyPlan make_greedy(const GreedyTask& task, const CostModel& cost, const GreedyRules& rules);

}  // namespace trifold
