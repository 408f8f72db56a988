// Runs of recommenders whose data are not at hand, such as planned ones.
#pragma once

#include "config/fields/recommend_config.h"

namespace trifold {

// The configuration without validation data and without what needs them.
RecommendConfig without_data(RecommendConfig config);

}  // namespace trifold
