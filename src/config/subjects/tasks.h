// Tasks that a trained encoder is tuned on.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

void add_task(OptionTable& table, FinetuneConfig& config);

}  // namespace trifold
