// Failures of nodes, for the goodput of a planned run.
#pragma once

#include "config/fields/goodput_config.h"
#include "config/options/option.h"

namespace trifold {

void add_goodput(OptionTable& table, GoodputConfig& goodput);

}  // namespace trifold
