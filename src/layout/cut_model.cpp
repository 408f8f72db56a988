#include "layout/cut_model.h"

#include <algorithm>
#include <numeric>

#include "data_parallel/flat_layout.h"
#include "models/language_model.h"
#include "models/stage_cut.h"

namespace trifold {

CutModel::CutModel(const ModelConfig& config, const MeshConfig& how, const Mesh& mesh, uint64_t seed,
                   std::vector<int> ranks)
    : model(make_model(config, mesh, seed, how)),
      rank_of_stage(std::move(ranks)),
      width(config.hidden_size),
      on_device(how.device == ComputeDevice::Cuda) {
  if (rank_of_stage.empty()) {
    rank_of_stage.resize(static_cast<size_t>(mesh.size(Axis::Pp)));
    std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
  }
  stages = cut_stages(how, model, static_cast<int>(rank_of_stage.size()));
}

std::vector<int> CutModel::blocks_of(size_t stage) const {
  const StageRange& range = stages[stage];
  std::vector<int> blocks(static_cast<size_t>(range.size()));
  std::iota(blocks.begin(), blocks.end(), range.begin);
  return blocks;
}

namespace {

size_t stage_of(int block, const std::vector<StageRange>& stages) {
  return static_cast<size_t>(
      std::find_if(stages.begin(), stages.end(), [&](const StageRange& range) { return block < range.end; }) -
      stages.begin());
}

}  // namespace

std::vector<TiedStage> CutModel::tied_stages() const {
  std::vector<TiedStage> tied;  // parameters are in the order of their blocks
  for (const ParamSpec& spec : model.params.specs()) {
    if (!spec.tied_to) continue;
    const size_t stage = stage_of(spec.block, stages);
    const int index = static_cast<int>(stage);
    if (stage == 0 || (!tied.empty() && tied.back().stage == index)) continue;
    tied.push_back({index, spec.block - stages[stage].begin});
  }
  return tied;
}

int CutModel::rank_of(const ParamSpec& spec) const { return rank_of_stage[stage_of(spec.block, stages)]; }

CutModel::Elements CutModel::elements_of(size_t stage) const {
  const StageRange& range = stages[stage];
  const auto uses = [&](const ParamSpec& spec) {
    return spec.block >= range.begin && spec.block < range.end;
  };
  Elements sum;
  for (const ParamSpec& spec : model.params.specs()) {
    if (!uses(spec)) continue;
    const int64_t elements = (spec.shard.local.elements() + kGrain - 1) / kGrain * kGrain;
    sum.gradients += elements;
    if (spec.tied_to && uses(model.params[*spec.tied_to])) continue;
    sum.weights += elements;
    if (spec.shard.data_axes() == kExpertDataAxes) sum.experts += elements;
  }
  return sum;
}

}  // namespace trifold
