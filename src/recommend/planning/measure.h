// Measures on this host the rates of a rank and, on synthetic clicks, the actions of training steps, from which a step
// is forecast, the time of such steps, and that of their parts. Actions and parts are timed in separate steps: on a
// device the mark at either end waits for all work in flight, so parts may add up to more than a step in which they
// overlap.
#pragma once

#include "recommend/planning/forecast.h"

namespace trifold {

struct RecommendMeasurement {
  RankRates rates;   // rates of rank 0, while all ranks measure
  StepTimes times;   // medians of rank 0: the step without marks, the parts with marks
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  bool spare_core = false;
  double vectors_of_step = 0;  // bytes sent by rank 0: vectors, their gradients, sums of replicated tables
};

// Starts config.run.mesh.ranks ranks and trains config.measure_steps steps three times, after a few warm-up steps each:
// for the actions, for the step and for the parts. `planned`: the data that the plan is for; synthetic clicks have the
// names of its tables.
RecommendMeasurement measure_recommender(const PlanRecommenderConfig& config, const ClickSchema& planned);

}  // namespace trifold
