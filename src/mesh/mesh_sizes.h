// The mesh that a configuration asks for.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/fields/config.h"
#include "mesh/mesh.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config);
// The record in a checkpoint of the mesh it was written on; the context axis and those of experts only where they are
// cut.
nlohmann::json to_json(const MeshSizes& sizes);

}  // namespace trifold
