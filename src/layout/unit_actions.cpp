#include "layout/unit_actions.h"

#include <algorithm>

namespace trifold {

namespace {

WeightUnit name_of_unit(const FlatLayout::Unit& unit, const std::vector<Stage>& stages) {
  for (const Stage& stage : stages)
    for (size_t i = 0; i < stage.blocks.size(); ++i)
      if (stage.blocks[i].index == unit.lowest_block) return {stage.index, static_cast<int>(i)};
  const Stage& last = stages.back();  // completes the copy of a tied weight: see Executor::model_block
  return {last.index, static_cast<int>(last.blocks.size())};
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

// The units of each block that `wanted(block, unit)` accepts.
template <class Wanted>
UnitsOfBlocks units_of_blocks(const FlatLayout& layout, const std::vector<Stage>& stages, Wanted&& wanted) {
  UnitsOfBlocks units(static_cast<size_t>(stages.back().index) + 1);
  for (const Stage& stage : stages)
    for (const StageBlock& block : stage.blocks) {
      auto& used = units[static_cast<size_t>(stage.index)].emplace_back();
      for (int index : layout.units_of_block(block.index)) {
        const FlatLayout::Unit& unit = layout.units()[static_cast<size_t>(index)];
        const WeightUnit name = name_of_unit(unit, stages);
        if (wanted(block, unit) && std::find(used.begin(), used.end(), name) == used.end())
          used.push_back(name);
      }
    }
  return units;
}

}  // namespace

IndicesOfUnits indices_of_units(const FlatLayout& layout, const std::vector<Stage>& stages) {
  IndicesOfUnits indices;
  for (size_t i = 0; i < layout.units().size(); ++i)
    indices[name_of_unit(layout.units()[i], stages)].push_back(static_cast<int>(i));
  return indices;
}

RankPlan add_gathering(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages) {
  constexpr int kAhead = 1;  // units that are gathered early, while the previous one computes
  const auto all = [](const StageBlock&, const FlatLayout::Unit&) { return true; };
  const auto read_again = [](const StageBlock& block, const FlatLayout::Unit&) {
    return block.backward != BlockBackward::None && block.layer->weight_backward_reads_weights();
  };
  const auto read_in_backward = [](const StageBlock& block, const FlatLayout::Unit&) {
    return block.backward != BlockBackward::None;
  };
  return add_residency(row, units_of_blocks(layout, stages, all), kAhead,
                       units_of_blocks(layout, stages, read_again),
                       units_of_blocks(layout, stages, read_in_backward));
}

std::vector<std::pair<int, int>> units_gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                         const std::vector<Stage>& stages) {
  return indices_of_pairs(weights_together(row), layout, stages);
}

std::vector<std::pair<int, int>> units_reduced_together(const RankPlan& row, const FlatLayout& layout,
                                                        const std::vector<Stage>& stages) {
  const auto passes = [&](const StageBlock&, const FlatLayout::Unit& unit) {
    return !layout.tied_elsewhere(unit);
  };
  const auto adds = [&](ActionKind kind, StageBlockIndex at) {
    const auto stage =
        std::find_if(stages.begin(), stages.end(), [&](const Stage& each) { return each.index == at.stage; });
    return stage->blocks.at(static_cast<size_t>(at.block)).adds_to_gradients(kind);
  };
  return indices_of_pairs(gradients_together(row, units_of_blocks(layout, stages, passes), adds), layout,
                          stages);
}

// A version must stay until its last use, together with all newer versions that exist by then.
int weight_versions(const RankPlan& row) {
  int newest = 0;
  int most = 1;
  for (const Action& action : row) {
    if (action.kind == ActionKind::Step)
      ++newest;
    else if (is_compute(action.kind))
      most = std::max(most, newest - action.version + 1);
  }
  return most;
}

}  // namespace trifold
