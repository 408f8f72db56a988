// Recommenders: samples, model, training, and the placement of tables.
#pragma once

#include "config/fields/recommend_config.h"
#include "config/options/problems.h"

namespace trifold {

void add_click_data(OptionTable& table, ClickDataConfig& data);
void add_recommender(OptionTable& table, DlrmConfig& model);
void add_click_training(OptionTable& table, RecommendConfig& config);
void add_tables(OptionTable& table, EmbeddingPlacementConfig& placement);  // starts no group
void add_table_ranks(OptionTable& table, RecommendConfig& config);
void add_click_files(OptionTable& table, RecommendConfig& config);

void check_click_data(const ClickDataConfig& data, Problems& problems);
// Depends on options that a run may inherit from the checkpoint that it loads.
void check_recommender(const RecommendConfig& config, Problems& problems);

}  // namespace trifold
