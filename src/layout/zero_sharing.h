// zero_sharing: the state that ZeRO shards in a run, the ranks that share it, and the size of units. It depends on the
// configuration and on the nodes of the ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/fields/config.h"
#include "layout/run_spec.h"
#include "mesh/mesh.h"
#include "zero/zero_stage.h"

namespace trifold {

// The node of each planned rank: `ranks_per_node` consecutive ranks share a node; without a value, all ranks share one.
std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node);

// A sharding group is as large as --zero-group-size says: a number of ranks, all ranks, or the ranks of a node. `nodes`
// [rank] is the node of each rank; empty: all on one. BadInput if the nodes do not cut the data axis into equal groups
// of at least 2 ranks.
ZeroSharing zero_sharing(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes);
// For a run that is planned but not started.
ZeroSharing zero_sharing(const RunSpec& run);

// The minimum size of a unit of parameters (data_parallel/flat_layout.h), in elements.
int64_t unit_elements(const ZeroConfig& config);

}  // namespace trifold
