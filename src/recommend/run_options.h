// The length of a run of `trifold recommend`, the learning rates of its tables, and the order and batches of its samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "clicks/click_source.h"
#include "config/fields/recommend_config.h"

namespace trifold {

int64_t last_step(const RecommendConfig& config, int64_t steps_per_epoch);

// The rates of the tables: those of the MLPs in the ratio of --embedding-lr to --lr.
LrConfig table_rates(const RecommendConfig& config);

// The seed of the order of samples (clicks/click_source.h); absent: the stored order.
std::optional<uint64_t> order_seed(const RecommendConfig& config);

// Stores the order in the state of a checkpoint. Older checkpoints, and those of shuffled samples, do not record it.
void note_order(const RecommendConfig& config, nlohmann::json& state);
// BadInput unless the checkpoint called `name` has samples in the order of the options: seed, --sample-order and
// --drop-last.
void check_order(const RecommendConfig& config, const nlohmann::json& state, const std::string& name);

ClickFeed training_feed(const RecommendConfig& config, const ClickSource& samples);
// Says what becomes of a last batch that is short; empty if there is none in the run, of `last_step` steps. BadInput if
// nothing is left without it, or if batch normalisation would get a batch of one.
std::string check_short_batch(const RecommendConfig& config, const ClickFeed& feed, int64_t samples,
                              int64_t last_step);

}  // namespace trifold
