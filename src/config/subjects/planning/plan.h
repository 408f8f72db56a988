// Plans: what they write, the costs of a rank, and the search for layouts.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"
#include "config/options/problems.h"

namespace trifold {

void add_plan(OptionTable& table, PlanConfig& config);
// The rates, files or device from which the costs of a rank are taken. Starts a group.
void add_costs(OptionTable& table, PlanConfig& config);

// Checks the load of experts, --moe-load-imbalance, for `run`.
void check_expert_load(double load, const PretrainConfig& run, Problems& problems);

}  // namespace trifold
