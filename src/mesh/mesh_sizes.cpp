#include "mesh/mesh_sizes.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config) {
  return {{Axis::Tp, config.tensor_model_parallel_size},
          {Axis::Dp, config.data_parallel_size.value_or(1)},
          {Axis::Pp, config.pipeline_model_parallel_size}};
}

}  // namespace trifold
