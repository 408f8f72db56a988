// The mesh of a configuration.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/fields/config.h"
#include "mesh/mesh.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config);
// The mesh as recorded in a checkpoint. The context and expert axes are included only if they have more than one rank.
nlohmann::json to_json(const MeshSizes& sizes);

}  // namespace trifold
