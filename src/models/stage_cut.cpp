#include "models/stage_cut.h"

#include <algorithm>
#include <numeric>

#include "config/subjects/pipeline_cut.h"
#include "core/error.h"

namespace trifold {

std::vector<StageRange> cut_stages(const MeshConfig& mesh, const Model& model, std::span<const double> costs,
                                   int stages) {
  if (!mesh.cut.given()) {
    std::vector<StageRange> cut = cut_stages(costs.subspan(static_cast<size_t>(model.lookups)), stages);
    for (StageRange& range : cut) range = {range.begin + model.lookups, range.end + model.lookups};
    return cut;
  }
  const int ranks = mesh.pipeline_model_parallel_size;
  const std::vector<int> layers = model.layers();
  check(!layers.empty(), "a model without layers cannot be cut by layers");
  const int behind = static_cast<int>(model.blocks.size()) - 1 - layers.back();
  const StageLayers given =
      stage_layers(mesh.cut, static_cast<int64_t>(layers.size()), behind, ranks, stages / ranks);
  if (given.problem) bad_input("{}", text_of(*given.problem));
  // A stage ends before the first layer of the next one, or after the last layer and its parts of the head. Blocks
  // before the first layer belong to the first stage.
  std::vector<StageRange> cut;
  size_t done = 0;  // layers of the stages so far
  int heads = 0;    // parts of the head
  int begin = model.lookups;
  for (size_t stage = 0; stage < given.layers.size(); ++stage) {
    done += static_cast<size_t>(given.layers[stage]);
    heads += given.heads[stage];
    const int end = done < layers.size() ? layers[done] : layers.back() + 1 + heads;
    cut.push_back({begin, end});
    begin = end;
  }
  return cut;
}

namespace {

template <class Counts>
std::vector<int> count_of_stages(const Model& model, std::span<const StageRange> cut, Counts counts) {
  std::vector<int> result;
  for (const StageRange& range : cut)
    result.push_back(static_cast<int>(
        std::count_if(model.blocks.begin() + range.begin, model.blocks.begin() + range.end, counts)));
  return result;
}

}  // namespace

std::vector<int> layers_of(const Model& model, std::span<const StageRange> cut) {
  return count_of_stages(model, cut, [](const Block& block) { return block.kind == BlockKind::Layer; });
}

std::vector<std::vector<int>> layers_by_kind(const Model& model, std::span<const StageRange> cut,
                                             bool forward_only) {
  size_t kinds = 0;
  for (const Block& block : model.blocks) kinds = std::max(kinds, block.layer_kind + 1);
  std::vector<std::vector<int>> result;
  for (const StageRange& range : cut) {
    std::vector<int>& stage = result.emplace_back(kinds, 0);
    for (int block = range.begin; block < range.end; ++block)
      if (const Block& each = model.blocks[static_cast<size_t>(block)];
          each.kind == BlockKind::Layer && !(forward_only && each.backward != BlockBackward::None))
        ++stage[each.layer_kind];
  }
  return result;
}

std::vector<int> heads_of(const Model& model, std::span<const StageRange> cut) {
  return count_of_stages(model, cut, [](const Block& block) { return block.kind == BlockKind::Head; });
}

int StageCounts::forward_only_of(int stage, size_t kind) const {
  return forward_only.empty() ? 0 : forward_only[static_cast<size_t>(stage)][kind];
}

double StageCounts::share_of_head(int stage) const {
  if (heads.empty()) return stage + 1 == static_cast<int>(layers.size()) ? 1 : 0;
  return static_cast<double>(heads[static_cast<size_t>(stage)]) /
         std::accumulate(heads.begin(), heads.end(), 0);
}

StageCounts stage_counts(const Model& model, std::span<const StageRange> cut) {
  StageCounts counts{layers_by_kind(model, cut), heads_of(model, cut)};
  if (model.blocks_without_backward() > 0) counts.forward_only = layers_by_kind(model, cut, true);
  return counts;
}

}  // namespace trifold
