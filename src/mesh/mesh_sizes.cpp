#include "mesh/mesh_sizes.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config) {
  return {config.tensor_model_parallel_size, config.data_parallel_size.value_or(1),
          config.pipeline_model_parallel_size};
}

}  // namespace trifold
