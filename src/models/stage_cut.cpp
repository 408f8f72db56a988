#include "models/stage_cut.h"

#include "config/pipeline_cut.h"
#include "core/error.h"

namespace trifold {

std::vector<StageRange> cut_stages(const MeshConfig& mesh, const Model& model, int stages) {
  if (!mesh.cut.given()) return cut_stages(model.block_costs(), stages);
  constexpr int kEnds = 2;  // blocks that are no layers: the embedding and the head
  const int ranks = mesh.pipeline_model_parallel_size;
  const auto blocks = static_cast<int>(model.blocks.size());
  const StageLayers given = stage_layers(mesh.cut, blocks - kEnds, ranks, stages / ranks);
  if (!given.problem.empty()) bad_input("{}", given.problem);
  std::vector<StageRange> cut;
  int block = 0;
  for (size_t stage = 0; stage < given.layers.size(); ++stage) {
    const int begin = block;
    block += given.layers[stage] + (stage == 0 ? 1 : 0) + (stage + 1 == given.layers.size() ? 1 : 0);
    cut.push_back({begin, block});
  }
  return cut;
}

}  // namespace trifold
