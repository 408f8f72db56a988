// Sharding over data-parallel ranks (stages of ZeRO), and the reduction of gradients.
#pragma once

#include <optional>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_zero(OptionTable& table, ZeroConfig& zero);
Option& add_zero_stage(OptionTable& table, ZeroConfig& zero);  // --zero-stage alone; starts no group
void check_zero(const PretrainConfig& config, Problems& problems);
// The number of ranks given by --zero-group-size; nullopt if it follows the nodes or is absent.
std::optional<int> given_group_size(const ZeroConfig& zero);

}  // namespace trifold
