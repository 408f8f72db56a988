#include "train/rank_memory.h"

#include <algorithm>
#include <map>

#include "data_parallel/data_sums.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

WeightUnit name_of_unit(const FlatLayout::Unit& unit, const std::vector<Stage>& stages) {
  for (const Stage& stage : stages)
    for (size_t i = 0; i < stage.blocks.size(); ++i)
      if (stage.blocks[i].index == unit.lowest_block) return {stage.index, static_cast<int>(i)};
  const Stage& last = stages.back();  // the copy of a tied weight: see Executor::model_block
  return {last.index, static_cast<int>(last.blocks.size())};
}

// Units of one block that are summed over other data axes go by one name: they come and go together.
using IndicesOfUnits = std::map<WeightUnit, std::vector<int>>;

IndicesOfUnits indices_of_units(const FlatLayout& layout, const std::vector<Stage>& stages) {
  IndicesOfUnits indices;
  for (size_t i = 0; i < layout.units().size(); ++i)
    indices[name_of_unit(layout.units()[i], stages)].push_back(static_cast<int>(i));
  return indices;
}

std::vector<std::pair<int, int>> indices_of_pairs(const std::vector<std::pair<WeightUnit, WeightUnit>>& pairs,
                                                  const FlatLayout& layout,
                                                  const std::vector<Stage>& stages) {
  const IndicesOfUnits indices = indices_of_units(layout, stages);
  std::vector<std::pair<int, int>> result;
  for (const auto& [a, b] : pairs)
    for (const int i : indices.at(a))
      for (const int j : indices.at(b)) result.emplace_back(i, j);
  for (const auto& [name, units] : indices)
    for (size_t i = 0; i < units.size(); ++i)
      for (size_t j = 0; j < i; ++j) result.emplace_back(units[j], units[i]);
  return result;
}

// The units of each block that `wanted(unit)` accepts.
template <class Wanted>
UnitsOfBlocks units_of_blocks(const FlatLayout& layout, const std::vector<Stage>& stages, Wanted&& wanted) {
  UnitsOfBlocks units(static_cast<size_t>(stages.back().index) + 1);
  for (const Stage& stage : stages)
    for (const StageBlock& block : stage.blocks) {
      auto& used = units[static_cast<size_t>(stage.index)].emplace_back();
      for (int index : layout.units_of_block(block.index)) {
        const FlatLayout::Unit& unit = layout.units()[static_cast<size_t>(index)];
        const WeightUnit name = name_of_unit(unit, stages);
        if (wanted(unit) && std::find(used.begin(), used.end(), name) == used.end()) used.push_back(name);
      }
    }
  return units;
}

}  // namespace

RankPlan with_residency(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages) {
  constexpr int kAhead = 1;  // units gathered behind the computation with the one before
  const auto all = [](const FlatLayout::Unit&) { return true; };
  return add_residency(row, units_of_blocks(layout, stages, all), kAhead);
}

std::vector<std::pair<int, int>> gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                   const std::vector<Stage>& stages) {
  return indices_of_pairs(weights_together(row), layout, stages);
}

namespace {

GradLayout passing_layout(const FlatLayout& layout, const RankPlan& row, const PipelinePlace& place) {
  const auto passes = [&](const FlatLayout::Unit& unit) { return !layout.tied_elsewhere(unit); };
  const int last_stage = static_cast<int>(place.rank_of_stage.size()) - 1;
  return GradLayout::passing(
      layout,
      indices_of_pairs(gradients_together(row, units_of_blocks(layout, place.stages, passes), last_stage),
                       layout, place.stages));
}

}  // namespace

GradLayout grad_layout(const FlatLayout& layout, const RankPlan& row, const PipelinePlace& place, bool each,
                       int micros, DType wire, int copies) {
  GradLayout result = each ? passing_layout(layout, row, place) : GradLayout::whole(layout, micros);
  if (wire == DType::BF16) result.add_work(layout, copies);
  return result;
}

MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         int64_t gathered, const ZeroConfig& config) {
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * size_of(dtype); };
  MemoryReport memory;
  memory.parameters =
      zero.parameters ? bytes(layout.shard_elements() + gathered) : bytes(versions * layout.elements());
  memory.gradients = static_cast<size_t>(gradients.elements()) * size_of(accumulate_type(dtype));
  const int64_t owned = zero.optimizer ? layout.shard_elements() : layout.elements();
  const size_t state_bytes = ShardedOptimizer::bytes_per_element(optimizer, dtype);
  memory.optimizer = static_cast<size_t>(owned) * state_bytes;
  if (!config.offloads()) return memory;
  memory.offloaded = memory.optimizer;
  if (config.offloads_to_host()) {
    memory.optimizer = 0;
    return memory;
  }
  memory.optimizer = static_cast<size_t>(std::min(owned, kOffloadWindow)) * state_bytes;
  if (zero.parameters) {
    memory.offloaded += bytes(layout.shard_elements());
    memory.parameters = bytes(gathered + layout.largest_slice());
  }
  return memory;
}

double data_traffic(const RankPlan& row, const FlatLayout& layout, const GradLayout& gradients,
                    const std::vector<Stage>& stages, DType dtype, DType wire, const ZeroStage& zero,
                    int copies) {
  // Once around a ring of `ranks`, of a tensor of so many elements.
  const auto pass = [](int ranks, int64_t elements, DType type) {
    return static_cast<double>(elements) * (ranks - 1) / ranks * static_cast<double>(size_of(type));
  };
  // What travels between the groups of a slice of so many elements.
  const auto to_copies = [&](int64_t elements, int groups) {
    return wire == DType::BF16 ? DataSums::work_elements(elements, groups) : elements;
  };
  double bytes = 0;
  std::vector<bool> between_copies(layout.units().size(), false);
  const auto reduce = [&](int index) {
    const FlatLayout::Unit& unit = layout.units()[static_cast<size_t>(index)];
    bytes += (zero.optimizer ? 1 : 2) * pass(unit.slices, unit.elements(), wire);
    // Sums of a unit that passes travel between the groups once a step.
    const int groups = slices_of(unit.data, copies);
    if (!between_copies[static_cast<size_t>(index)])
      bytes += 2 * pass(groups, to_copies(unit.slice_elements(), groups), wire);
    between_copies[static_cast<size_t>(index)] = gradients.passes(index);
  };
  const IndicesOfUnits indices = indices_of_units(layout, stages);
  for (const Action& action : row) {
    if (action.kind == ActionKind::ReduceGrad)
      for (const int unit : indices.at({action.stage, action.block})) reduce(unit);
    if (action.kind == ActionKind::ReduceTied)
      for (size_t i = 0; i < layout.units().size(); ++i)
        if (layout.units()[i].lowest_block == kCopyOfTied) reduce(static_cast<int>(i));
    if (action.kind == ActionKind::Unshard)
      for (const int index : indices.at({action.stage, action.block})) {
        const FlatLayout::Unit& unit = layout.units()[static_cast<size_t>(index)];
        bytes += pass(unit.slices, unit.elements(), dtype);
      }
    // One update of all that the rank holds: the Steps of its stages are one.
    const bool update = action.kind == ActionKind::Step && action.stage == stages.front().index;
    if (update && zero.optimizer && !zero.parameters)
      for (const FlatLayout::Unit& unit : layout.units()) bytes += pass(unit.slices, unit.elements(), dtype);
  }
  return bytes;
}

}  // namespace trifold
