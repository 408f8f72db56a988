// What ZeRO shards in a run, over which ranks, and in how large units: decided from the configuration and
// from the nodes that the ranks are on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/fields/config.h"
#include "mesh/mesh.h"
#include "zero/zero_stage.h"

namespace trifold {

// The nodes of ranks that are only planned: `ranks_per_node` ranks that follow each other share a node; all
// ranks are on one where nothing is given.
std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node);

// What ZeRO shards, and over which ranks: as many as --zero-group-size gives, all of them, or those on one
// node. `nodes` by rank; empty: all on one. BadInput where the nodes do not cut the data axis into equal
// groups of at least 2 ranks.
ZeroSharing zero_sharing(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes);
// The same for a run that is only planned.
ZeroSharing zero_sharing(const PretrainConfig& run);

// The least size of a unit of parameters (data_parallel/flat_layout.h).
int64_t unit_elements(const ZeroConfig& config);

}  // namespace trifold
