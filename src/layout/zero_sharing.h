// ZeRO's decisions for a run: the state that is sharded, the ranks that share it, and the size of units. They follow
// from the configuration and the nodes of the ranks.
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

// The nodes of planned ranks: each `ranks_per_node` consecutive ranks share a node; without it, all ranks are
// on one.
std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node);

// The state that ZeRO shards, and the ranks that share it: as many as --zero-group-size gives, all, or those on one
// node. `nodes` is indexed by rank; empty: all on one. BadInput if the nodes do not cut the data axis into
// equal groups of at least 2 ranks.
ZeroSharing zero_sharing(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes);
// How a run that is only planned, not started, shards its state.
ZeroSharing zero_sharing(const RunSpec& run);

// The minimum size of a unit of parameters (data_parallel/flat_layout.h), in elements.
int64_t unit_elements(const ZeroConfig& config);

}  // namespace trifold
