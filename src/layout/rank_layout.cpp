#include "layout/rank_layout.h"

#include "data_parallel/data_sums.h"
#include "layout/flat_memory.h"
#include "layout/unit_actions.h"
#include "layout/zero_sharing.h"
#include "zero/param_store.h"

namespace trifold {

namespace {

std::vector<Stage> stages_on(int pipeline_rank, const CutModel& model) {
  std::vector<Stage> stages;
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    if (model.rank_of_stage[stage] != pipeline_rank) continue;
    stages.push_back({static_cast<int>(stage), {}});
    for (const int block : model.blocks_of(stage)) {
      const Block& known = model.model.blocks[static_cast<size_t>(block)];
      stages.back().blocks.push_back({known.layer.get(), known.slots, block, known.backward});
    }
  }
  check(!stages.empty(), "pipeline rank {} has no stage", pipeline_rank);
  return stages;
}

FlatLayout flat_layout(const CutModel& model, const std::vector<Stage>& stages, int64_t unit_elements,
                       const MeshSizes& sizes, int group) {
  std::vector<std::vector<int>> blocks;
  std::vector<int> held;
  for (const Stage& stage : stages) {
    blocks.push_back(model.blocks_of(static_cast<size_t>(stage.index)));
    held.insert(held.end(), blocks.back().begin(), blocks.back().end());
  }
  ParamList params = model.model.params;
  params.hold_blocks(held);
  return {std::move(params), blocks, unit_elements, sizes, group};
}

}  // namespace

RankLayout::RankLayout(const CutModel& model, const MeshSizes& sizes, const MeshCoords& coords,
                       const ZeroConfig& zero, const ZeroSharing& sharing)
    : model_(&model),
      sizes_(sizes),
      coords_(coords),
      config_(zero),
      sharing_(sharing),
      stages_(stages_on(coords[Axis::Pp], model)),
      flat_(flat_layout(model, stages_, unit_elements(zero), sizes, sharing.group)) {}

PipelineRank RankLayout::pipeline() const {
  PipelineRank pipeline;
  pipeline.stages = stages_;
  pipeline.rank_of_stage = model_->rank_of_stage;
  pipeline.offloads_device = model_->on_device;
  for (const StageRange& range : model_->stages)
    pipeline.outputs.push_back(model_->model.blocks[static_cast<size_t>(range.end) - 1].output);
  return pipeline;
}

std::vector<FlatLayout::Segment> RankLayout::owned(const FlatLayout::Unit& unit) const {
  if (!sharing_.stage.optimizer) return flat_.segments(unit, std::nullopt);
  return flat_.segments(unit, place_along(unit.data, coords_, sizes_) % unit.slices);
}

bool RankLayout::saves(ParamId id) const {
  const ParamSpec& param = params()[id];
  const int slices =
      sharing_.stage.optimizer ? slices_of(param.shard.data_axes(), sizes_, sharing_.group) : 1;
  return !param.tied_to && counts_here(param.shard, coords_, sizes_, slices);
}

RankPlan RankLayout::with_residency(const RankPlan& row) const {
  return sharing_.stage.parameters ? add_gathering(row, flat_, stages_) : without_residency(row);
}

std::vector<std::pair<int, int>> RankLayout::gathered_together(const RankPlan& row) const {
  if (!sharing_.stage.parameters) return {};
  return units_gathered_together(row, flat_, stages_);
}

GradLayout RankLayout::gradients(const RankPlan& row, const Reduction& reduction) const {
  GradLayout result = reduction.each ? GradLayout::passing(flat_, units_reduced_together(row, flat_, stages_))
                                     : GradLayout::whole(flat_, reduction.micros);
  if (reduction.wire == DType::BF16) result.add_work(flat_);
  return result;
}

MemoryReport RankLayout::memory(const RankPlan& row, const GradLayout& gradients, DType dtype,
                                const OptimizerConfig& optimizer) const {
  const size_t gathered =
      sharing_.stage.parameters
          ? static_cast<size_t>(buffers_of_units(flat_, gathered_together(row), dtype).all_elements())
          : 0;
  return flat_memory(
      flat_, gradients, dtype, optimizer, sharing_.stage, weight_versions(row), gathered, config_,
      ShardedOptimizer::work_bytes(flat_, sizes_, coords_, sharing_.stage.optimizer, optimizer, dtype));
}

ActivationMemory RankLayout::activations(const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                                         LayerType type) const {
  Batch batch = batch_without_memory(micro_batch_size, seq_length, model_->model.later_labels);
  cut_rows(batch, rows_here(model_->model.row_cut, seq_length, sizes_, coords_));
  return Executor::measure(pipeline(), params(), Mesh(sizes_, coords_), row, batch, type);
}

double RankLayout::data_traffic(const RankPlan& row, const GradLayout& gradients, DType dtype,
                                DType wire) const {
  const ZeroStage& zero = sharing_.stage;
  // The bytes of one pass around a ring of `ranks`, for a tensor of `elements`.
  const auto pass = [](int ranks, int64_t elements, DType type) {
    return static_cast<double>(elements) * (ranks - 1) / ranks * static_cast<double>(size_of(type));
  };
  // The elements that are sent between groups for a slice of `elements`.
  const auto to_copies = [&](int64_t elements, int groups) {
    return wire == DType::BF16 ? DataSums::work_elements(elements, groups) : elements;
  };
  double bytes = 0;
  std::vector<bool> between_copies(flat_.units().size(), false);
  const auto reduce = [&](int index) {
    const FlatLayout::Unit& unit = flat_.units()[static_cast<size_t>(index)];
    if (unit.frozen) return;
    bytes += (zero.optimizer ? 1 : 2) * pass(unit.slices, unit.elements(), wire);
    // The sums of a transient unit are sent between the groups once per step.
    if (!between_copies[static_cast<size_t>(index)])
      bytes += 2 * pass(unit.groups, to_copies(unit.slice_elements(), unit.groups), wire);
    between_copies[static_cast<size_t>(index)] = gradients.passes(index);
  };
  const IndicesOfUnits indices = indices_of_units(flat_, stages_);
  for (const Action& action : row) {
    if (action.kind == ActionKind::ReduceGrad)
      for (const int unit : indices.at({action.stage, action.block})) reduce(unit);
    if (action.kind == ActionKind::ReduceTied)
      for (size_t i = 0; i < flat_.units().size(); ++i)
        if (flat_.units()[i].lowest_block == kCopyOfTied) reduce(static_cast<int>(i));
    if (action.kind == ActionKind::Unshard)
      for (const int index : indices.at({action.stage, action.block})) {
        const FlatLayout::Unit& unit = flat_.units()[static_cast<size_t>(index)];
        bytes += pass(unit.slices, unit.elements(), unit.quantized ? DType::U8 : dtype);
      }
    // The Steps of the rank's stages are one update of all its weights, counted at the first.
    const bool update = action.kind == ActionKind::Step && action.stage == stages_.front().index;
    if (update && zero.optimizer && !zero.parameters)
      for (const FlatLayout::Unit& unit : flat_.units())
        if (!unit.frozen) bytes += pass(unit.slices, unit.elements(), dtype);
  }
  return bytes;
}

}  // namespace trifold
