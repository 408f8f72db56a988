// Plans: what they write, the costs of a rank, and the search for layouts.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

void add_plan(OptionTable& table, PlanConfig& config);
// Failures of nodes, for the goodput of a planned run (config/subjects/goodput.cpp).
void add_goodput(OptionTable& table, GoodputConfig& goodput);

}  // namespace trifold
