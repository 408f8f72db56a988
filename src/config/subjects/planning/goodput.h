// Failures of nodes, for the goodput of a planned run.
#pragma once

#include "config/fields/goodput_config.h"
#include "config/options/option.h"

namespace trifold {

// The longest save, stall, restart or time until a failure is noticed, in seconds: a year.
inline constexpr double kMostGoodputSeconds = 31'536'000;

void add_goodput(OptionTable& table, GoodputConfig& goodput);

}  // namespace trifold
