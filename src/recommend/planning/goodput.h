// The goodput of a planned recommender on a machine whose nodes fail (plan/goodput/goodput.h).
#pragma once

#include "plan/goodput/goodput.h"
#include "recommend/planning/forecast.h"

namespace trifold {

// `plan` is the plan of `config`, which must have --mtbf and --ranks-per-node. Smaller meshes have one or two nodes
// less: the tables are placed anew on any number of ranks.
GoodputReport recommender_goodput(const PlanRecommenderConfig& config, const RecommendPlan& plan);

}  // namespace trifold
