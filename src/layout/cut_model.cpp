#include "layout/cut_model.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "data_parallel/flat_layout.h"
#include "models/language_model.h"
#include "models/stage_cut.h"

namespace trifold {

CutModel::CutModel(const ModelConfig& config, const MeshConfig& layout, const Mesh& mesh, uint64_t seed,
                   StageRanks stage_ranks)
    : flops(sample_flops(config, mesh.size(Axis::Tp))),
      model(make_model(config, mesh, seed, layout)),
      rank_of_stage(std::move(stage_ranks.ranks)),
      on_device(layout.device == ComputeDevice::Cuda) {
  if (rank_of_stage.empty()) {
    rank_of_stage.resize(static_cast<size_t>(mesh.size(Axis::Pp)));
    std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
  }
  const bool shared = layout.pipeline_vocab_parts > 1 && !config.untie_embeddings_and_output_weights;
  const std::vector<int> given = rank_of_stage;
  // Without lookups all ranks have the same number of stages; at least one rank has no lookup stage.
  const size_t ranks_of_pipeline = static_cast<size_t>(layout.pipeline_model_parallel_size);
  const bool planned =
      shared && stage_ranks.lookups == TokenLookups::AsPlanned && given.size() >= ranks_of_pipeline;
  const auto first =
      given.begin() + (planned ? static_cast<std::ptrdiff_t>(given.size() % ranks_of_pipeline) : 0);
  rank_of_stage.assign(first, given.end());
  const auto cut = [&] {
    stages = cut_stages(layout, model, block_costs(), static_cast<int>(rank_of_stage.size()));
  };
  cut();
  if (!shared) check_ties();
  if (!shared || stage_ranks.lookups == TokenLookups::FirstStage) return;

  std::vector<int> ranks;
  std::vector<std::vector<int>> parts;
  for (const Lookup& lookup : lookups_at_head()) {
    ranks.push_back(lookup.rank);
    parts.push_back(lookup.parts);
  }
  if (stage_ranks.lookups == TokenLookups::AsPlanned &&
      !std::equal(ranks.begin(), ranks.end(), given.begin(), first)) {
    rank_of_stage = given;
    cut();
    return;
  }
  if (ranks.empty()) return;
  model = make_model(config, mesh, seed, layout, parts);
  cut();
  for (int block = model.lookups; block-- > 0;) stages.insert(stages.begin(), {block, block + 1});
  rank_of_stage.insert(rank_of_stage.begin(), ranks.begin(), ranks.end());
}

// The lookup stages of each rank, in the order of their first parts. The rank of the first stage looks up its tokens
// there.
std::vector<CutModel::Lookup> CutModel::lookups_at_head() const {
  std::vector<Lookup> lookups;
  int part = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const int rank = rank_of_stage[stage];
    for (const int block : blocks_of(stage)) {
      if (model.blocks[static_cast<size_t>(block)].kind != BlockKind::Head) continue;
      const int index = part++;
      if (rank == rank_of_stage.front()) continue;
      auto found = std::find_if(lookups.begin(), lookups.end(),
                                [&](const Lookup& lookup) { return lookup.rank == rank; });
      if (found == lookups.end()) found = lookups.insert(lookups.end(), {rank, {}});
      found->parts.push_back(index);
    }
  }
  return lookups;
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

// A weight on two ranks has one use on each, the first in the first block, whose gradient is reduced last.
void CutModel::check_ties() const {
  std::map<int, int> uses;  // tied uses by the index of their original
  for (const ParamSpec& spec : model.params.specs())
    if (spec.tied_to) ++uses[spec.tied_to->index];
  for (const ParamSpec& spec : model.params.specs()) {
    if (!is_copy(spec)) continue;
    const std::string& name = model.params[*spec.tied_to].shard.name;
    if (uses[spec.tied_to->index] > 1)
      bad_input(
          "the parameter '{}' is used in {} blocks on several pipeline ranks, which is possible for two blocks: "
          "use fewer stages, or give the blocks weights of their own",
          name, uses[spec.tied_to->index] + 1);
    if (model.params[*spec.tied_to].block != stages.front().begin)
      bad_input(
          "the parameter '{}' is used on two pipeline ranks, and first in block {}, not in the first block of the "
          "model: use fewer stages, or give the blocks weights of their own",
          name, model.params[*spec.tied_to].block);
  }
}

std::vector<TiedStage> CutModel::tied_stages() const {
  std::vector<TiedStage> tied;  // parameters are in the order of their blocks
  for (const ParamSpec& spec : model.params.specs()) {
    if (!spec.tied_to || spec.frozen) continue;
    const size_t stage = stage_of(spec.block, stages);
    const int index = static_cast<int>(stage);
    const int of = static_cast<int>(stage_of(model.params[*spec.tied_to].block, stages));
    if (of == index || (!tied.empty() && tied.back().stage == index)) continue;
    tied.push_back({index, spec.block - stages[stage].begin, of});
  }
  return tied;
}

int CutModel::rank_of(const ParamSpec& spec) const { return rank_of_stage[stage_of(spec.block, stages)]; }

bool CutModel::is_copy(const ParamSpec& spec) const {
  return spec.tied_to && rank_of(model.params[*spec.tied_to]) != rank_of(spec);
}

CutModel::Elements CutModel::elements_of(size_t stage) const {
  const StageRange& range = stages[stage];
  const auto uses = [&](const ParamSpec& spec) {
    return spec.block >= range.begin && spec.block < range.end;
  };
  Elements sum;
  for (const ParamSpec& spec : model.params.specs()) {
    if (!uses(spec)) continue;
    const int64_t elements = (spec.shard.local.elements() + kGrain - 1) / kGrain * kGrain;
    if (!spec.frozen) sum.gradients += elements;
    if (spec.tied_to && !is_copy(spec)) continue;
    sum.weights += elements;
    if (!spec.frozen) sum.trained += elements;
    if (spec.quantized) {
      sum.quantized += elements;
      sum.quantized_bytes += (spec.stored_length() + kGrain - 1) / kGrain * kGrain;
    }
    if (spec.shard.data_axes() != kExpertDataAxes) continue;
    sum.experts += elements;
    if (!spec.frozen) sum.trained_experts += elements;
  }
  return sum;
}

}  // namespace trifold
