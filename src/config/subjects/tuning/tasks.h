// Tasks that a trained model is tuned on: their data and their settings.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

void add_task(OptionTable& table, FinetuneConfig& config);

}  // namespace trifold
