// What options of `trifold recommend` imply for a run: its length, the learning rates of tables, and the order and
// batches of samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "clicks/click_source.h"
#include "config/fields/recommend_config.h"

namespace trifold {

int64_t last_step(const RecommendConfig& config, int64_t steps_per_epoch);

// The learning rates of the tables: the rates of the MLPs, scaled by the ratio of --embedding-lr to --lr.
LrConfig table_rates(const RecommendConfig& config);

// The seed that shuffles samples (clicks/click_source.h); nullopt: the stored order.
std::optional<uint64_t> order_seed(const RecommendConfig& config);

// Records the order of samples in the state of a checkpoint. The default, shuffled without --drop-last, is not
// recorded, as in older checkpoints.
void note_order(const RecommendConfig& config, nlohmann::json& state);
// BadInput unless the options (--seed, --sample-order, --drop-last) give samples the order that `state`, of the
// checkpoint called `name`, records.
void check_order(const RecommendConfig& config, const nlohmann::json& state, const std::string& name);

ClickFeed training_feed(const RecommendConfig& config, const ClickSource& samples);
// A message for the user about the short last batch of each epoch; empty if a run of `last_step` steps has none.
// BadInput if --drop-last drops all samples, or if batch normalisation would get a batch of one sample.
std::string check_short_batch(const RecommendConfig& config, const ClickFeed& feed, int64_t samples,
                              int64_t last_step);

}  // namespace trifold
