// The rates of a rank on this host, the time of training steps on synthetic clicks, and that of their parts.
// Parts are timed in steps of their own: on a device each mark of a part's beginning or end waits for all
// that is under way, so their sum may be more than the step, where they run beside each other.
#pragma once

#include "recommend/forecast.h"

namespace trifold {

struct RecommendMeasurement {
  RankRates rates;   // of rank 0, while all ranks measure
  StepTimes times;   // means of rank 0: the step as it runs; parts waited for
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  bool spare_core = false;
  double vectors_of_step = 0;  // bytes that rank 0 sent: vectors, their gradients, sums of replicated tables
};

// Starts config.run.mesh.ranks ranks and trains config.measure_steps steps, after a few that are not
// counted; then as many again for the parts.
RecommendMeasurement measure_recommender(const PlanRecommenderConfig& config);

}  // namespace trifold
