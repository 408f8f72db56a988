// The weight decay of every step, as Megatron-LM defines it (--weight-decay-incr-style): constant, or from a first to a
// last value over the samples of the run. Like the learning rate it is a pure function of the samples consumed before
// the step, so a resumed run has the same values.
//
// With n samples consumed of N, r = n / N, and n > N as n = N:
//
//   constant   --weight-decay
//   linear     start + (end - start) r
//   cosine     start + (end - start) (1 + cos(pi (1 - r))) / 2
#pragma once

#include <cstdint>

#include "config/fields/training_config.h"

namespace trifold {

// Whether the weight decay changes during a run.
bool weight_decay_changes(const OptimizerConfig& config);

// The weight decay after `samples` of the run's `all` samples.
double weight_decay_after(const OptimizerConfig& config, int64_t samples, int64_t all);

}  // namespace trifold
