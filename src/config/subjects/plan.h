// Plans: what they write, the costs of a rank, and the search for layouts.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

void add_plan(OptionTable& table, PlanConfig& config);

}  // namespace trifold
