// From the options of a recommender to the setup of its ranks.
#pragma once

#include <nlohmann/json.hpp>

#include "clicks/click_batch.h"
#include "config/fields/recommend_config.h"
#include "embedding/planner.h"
#include "recommend/recommender.h"

namespace trifold {

// What the configuration asks for on `ranks` ranks, the placement worked out. BadInput where it cannot be.
RecommenderSetup recommender_setup(const RecommendConfig& config, const ClickSchema& schema, int ranks);
PlacementInput placement_input(const RecommendConfig& config, int ranks);

// The model of a checkpoint's metadata: what must agree for its tensors to fit.
nlohmann::json recommender_model(const RecommendConfig& config, const ClickSchema& schema);

}  // namespace trifold
