// Measures on this host the rates of a rank, the time of training steps on synthetic clicks, and that of their parts.
// Parts are timed in separate steps: on a device the mark at either end of a part waits for all work in flight, so the
// parts may add up to more than a step in which they overlap.
#pragma once

#include "recommend/planning/forecast.h"

namespace trifold {

struct RecommendMeasurement {
  RankRates rates;   // of rank 0, while all ranks measure
  StepTimes times;   // means of rank 0: the step without marks, the parts with marks
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  bool spare_core = false;
  double vectors_of_step = 0;  // bytes sent by rank 0: vectors, their gradients, sums of replicated tables
};

// Starts config.run.mesh.ranks ranks and trains config.measure_steps steps after a few warm-up steps, then as many
// again for the parts. `planned`: the data that the plan is for; synthetic clicks have the names of its tables.
RecommendMeasurement measure_recommender(const PlanRecommenderConfig& config, const ClickSchema& planned);

}  // namespace trifold
