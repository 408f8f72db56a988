// The types of numbers, and the scale of losses in f16.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_precision(OptionTable& table, PrecisionConfig& precision);
void add_tf32(OptionTable& table, PrecisionConfig& precision);  // part of the group above

// The extents of matrix products in 8 bits must be multiples of 16 on every rank.
void check_fp8(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
