// The mesh that a configuration asks for.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/fields/config.h"
#include "mesh/mesh.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config);
// The mesh as checkpoints describe it; the context axis appears only if it is cut.
nlohmann::json to_json(const MeshSizes& sizes);

}  // namespace trifold
