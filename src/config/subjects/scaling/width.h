// The transfer of tuned hyperparameters to a model of another width (models/width_rules.h).
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_width(OptionTable& table, ModelConfig& model);  // starts no group

}  // namespace trifold
