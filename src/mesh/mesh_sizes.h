// The mesh that a configuration asks for.
#pragma once

#include "config/config.h"
#include "mesh/mesh.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config);

}  // namespace trifold
