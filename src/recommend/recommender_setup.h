// Turns the options of a recommender into the setup of its ranks.
#pragma once

#include <nlohmann/json.hpp>

#include "clicks/click_batch.h"
#include "config/fields/recommend_config.h"
#include "embedding/planner.h"
#include "recommend/recommender.h"

namespace trifold {

// The setup for `ranks` ranks, including the placement of tables. BadInput if the configuration is not possible on
// them.
RecommenderSetup recommender_setup(const RecommendConfig& config, const ClickSchema& schema, int ranks);
// Where tables are stored, in memory or in files, and how much memory caches them.
TableStorage storage_of(const EmbeddingPlacementConfig& placement, ComputeDevice device);
// BadInput unless the folder of --table-storage can hold what each rank of `setup` writes there.
void check_table_folder(const RecommenderSetup& setup, int ranks);
PlacementInput placement_input(const RecommendConfig& config, const ClickSchema& schema, int ranks);

// The description of the model for a checkpoint's metadata: everything that must agree for the checkpoint's tensors to
// fit.
nlohmann::json recommender_model(const RecommendConfig& config, const ClickSchema& schema);

}  // namespace trifold
