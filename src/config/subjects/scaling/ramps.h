// Values of training that change during a run: the size of the global batch, and the weight decay.
#pragma once

#include <cstdint>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_batch_ramp(OptionTable& table, BatchConfig& batch);
void add_weight_decay_ramp(OptionTable& table, OptimizerConfig& optimizer);

// Checks the three numbers of --rampup-batch-size, that every size can be divided among `data` data-parallel ranks, and
// that a schedule's plan can be made for every size.
void check_batch_ramp(const PretrainConfig& config, int64_t data, Problems& problems);
// Checks lengths in samples of a run whose batch grows; `global_batch` is the full size, 0 if it is not known.
void check_samples_of_ramp(const BatchConfig& batch, const LrConfig& lr, int64_t global_batch,
                           Problems& problems);
void check_weight_decay(const OptimizerConfig& optimizer, Problems& problems);

}  // namespace trifold
