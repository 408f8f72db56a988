// Checks of the options of recommenders that several commands share.
#pragma once

#include "config/fields/recommend_config.h"
#include "config/options/problems.h"

namespace trifold {

// --table-storage and --table-cache.
void check_table_storage(const EmbeddingPlacementConfig& placement, const MeshConfig& mesh,
                         Problems& problems);

}  // namespace trifold
