// The length of a run of `trifold recommend`, the learning rates of its tables and the order of its samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "config/fields/recommend_config.h"

namespace trifold {

int64_t last_step(const RecommendConfig& config, int64_t steps_per_epoch);

// The rates of the tables: those of the MLPs in the ratio of --embedding-lr to --lr.
LrConfig table_rates(const RecommendConfig& config);

// The seed of the order of samples (clicks/click_source.h); absent: the stored order.
std::optional<uint64_t> order_seed(const RecommendConfig& config);

// Stores the order in the state of a checkpoint. Older checkpoints, and those of shuffled samples, do not record it.
void note_order(const RecommendConfig& config, nlohmann::json& state);
// BadInput unless the checkpoint called `name` has samples in the order of the options: seed and --sample-order.
void check_order(const RecommendConfig& config, const nlohmann::json& state, const std::string& name);

}  // namespace trifold
