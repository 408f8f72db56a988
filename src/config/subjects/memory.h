// Options that trade time for memory, and the limit of a rank.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_recompute(OptionTable& table, MeshConfig& mesh);
void add_memory_limit(OptionTable& table, MeshConfig& mesh);  // continues the group
// Checks the tiles of rows against the rows of a micro-batch.
void check_tiled_mlp(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
