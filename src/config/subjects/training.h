// Batches, the length of a run, the learning rate and the optimizer.
#pragma once

#include <cstdint>
#include <optional>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_batch(OptionTable& table, BatchConfig& batch);
// Conditions that end a run before its last step.
void add_exit(OptionTable& table, std::optional<int64_t>& interval, std::optional<double>& minutes);
void add_length(OptionTable& table, BatchConfig& batch, uint64_t& seed);
void add_lr(OptionTable& table, LrConfig& lr);
void add_optimizer(OptionTable& table, OptimizerConfig& optimizer);

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems);
void check_length(const BatchConfig& batch, Problems& problems);

}  // namespace trifold
