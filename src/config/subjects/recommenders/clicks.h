// The preprocessing of click logs: columns, ids, samples.
#pragma once

#include "config/fields/recommend_config.h"
#include "config/options/problems.h"

namespace trifold {

void add_clicks(OptionTable& table, PreprocessConfig& config);
void check_clicks(const PreprocessConfig& config, Problems& problems);

}  // namespace trifold
