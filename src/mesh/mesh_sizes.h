// The mesh of a configuration.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "config/fields/config.h"
#include "mesh/mesh.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config);
// The pipeline rank of each rank of the mesh.
std::vector<int> pipeline_rank_of_ranks(const MeshSizes& sizes);
// The mesh as recorded in a checkpoint. The context and expert axes are included only if they have more than one rank.
nlohmann::json to_json(const MeshSizes& sizes);

}  // namespace trifold
