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
// Lengths that may be given in samples instead of steps.
void add_lengths_in_samples(OptionTable& table, BatchConfig& batch, LrConfig& lr);
void add_optimizer(OptionTable& table, OptimizerConfig& optimizer);

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems);
// Replaces lengths in samples by whole steps of `global_batch` samples, rounded down as in Megatron-LM. If the batch
// grows, only the length of the run is replaced.
void take_samples_as_steps(BatchConfig& batch, LrConfig& lr, int64_t global_batch);
// Whether a length is given in samples.
bool gives_samples(const BatchConfig& batch, const LrConfig& lr);
// Notes the steps that take_samples_as_steps computes; problems for a length below one step. `global_batch` is 0 if it
// is not known, which is a problem too.
void check_samples(const BatchConfig& batch, const LrConfig& lr, int64_t global_batch, Problems& problems);
void check_length(const BatchConfig& batch, Problems& problems);

}  // namespace trifold
