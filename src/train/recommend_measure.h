// The rates of a rank on this host, and the parts of training steps on synthetic clicks.
#pragma once

#include "train/recommend_plan.h"

namespace trifold {

struct RecommendMeasurement {
  RankRates rates;   // of rank 0, while all ranks measure
  StepTimes times;   // means of rank 0 over the steps
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  bool spare_core = false;
  double vectors_of_step = 0;  // bytes that rank 0 sent: vectors, their gradients, sums of replicated tables
};

// Starts config.run.mesh.ranks ranks and trains config.measure_steps steps, after a few that are not counted.
RecommendMeasurement measure_recommender(const PlanRecommenderConfig& config);

}  // namespace trifold
