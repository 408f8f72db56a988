// Data types, and the loss scale in f16.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_precision(OptionTable& table, PrecisionConfig& precision);
void add_tf32(OptionTable& table, PrecisionConfig& precision);  // part of the group above

// Checks that the extents of matrix products in 8 bits are multiples of 16 on every rank.
void check_fp8(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
