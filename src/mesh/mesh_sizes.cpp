#include "mesh/mesh_sizes.h"

#include <nlohmann/json.hpp>

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config) {
  return {{Axis::Tp, config.tensor_model_parallel_size},     {Axis::Cp, config.context_parallel_size},
          {Axis::Dp, config.data_parallel_size.value_or(1)}, {Axis::Pp, config.pipeline_model_parallel_size},
          {Axis::Etp, config.expert_tensor_parallel_size},   {Axis::Ep, config.expert_model_parallel_size}};
}

std::vector<int> pipeline_rank_of_ranks(const MeshSizes& sizes) {
  std::vector<int> pipeline_ranks;
  for (int rank = 0; rank < sizes.ranks(); ++rank) pipeline_ranks.push_back(coords_of(rank, sizes)[Axis::Pp]);
  return pipeline_ranks;
}

nlohmann::json to_json(const MeshSizes& sizes) {
  nlohmann::json json{{"tp", sizes[Axis::Tp]}, {"dp", sizes[Axis::Dp]}, {"pp", sizes[Axis::Pp]}};
  if (sizes[Axis::Cp] > 1) json["cp"] = sizes[Axis::Cp];
  if (sizes[Axis::Ep] > 1) json["ep"] = sizes[Axis::Ep];
  if (sizes[Axis::Etp] > 1) json["etp"] = sizes[Axis::Etp];
  return json;
}

}  // namespace trifold
