#include "train/rank_memory.h"

#include <algorithm>

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

}  // namespace

RankPlan with_residency(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages) {
  constexpr int kAhead = 1;  // units gathered behind the computation with the one before
  UnitsOfBlocks units(static_cast<size_t>(stages.back().index) + 1);
  for (const Stage& stage : stages)
    for (const StageBlock& block : stage.blocks) {
      auto& read = units[static_cast<size_t>(stage.index)].emplace_back();
      for (int unit : layout.units_of_block(block.index))
        read.push_back(name_of_unit(layout.units()[static_cast<size_t>(unit)], stages));
    }
  return add_residency(row, units, kAhead);
}

MemoryReport flat_memory(const FlatLayout& layout, DType dtype, const OptimizerConfig& optimizer,
                         const ZeroStage& zero, int versions, int resident, bool offload) {
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * size_of(dtype); };
  int64_t largest = 0;
  for (const FlatLayout::Unit& unit : layout.units()) largest = std::max(largest, unit.elements());
  const ParamList& params = layout.params();
  int64_t local_ties = 0;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].tied_to && params.held({i}) && !params.stored({i}))
      local_ties += params[{i}].shard.local.elements();
  MemoryReport memory;
  memory.parameters = zero.parameters ? bytes(layout.shard_elements() + resident * largest)
                                      : bytes(versions * layout.elements());
  memory.gradients = static_cast<size_t>(layout.elements() + local_ties) * size_of(accumulate_type(dtype));
  const int64_t owned = zero.optimizer ? layout.shard_elements() : layout.elements();
  const size_t state_bytes = ShardedOptimizer::bytes_per_element(optimizer, dtype);
  memory.optimizer = static_cast<size_t>(owned) * state_bytes;
  if (!offload) return memory;
  memory.in_file = memory.optimizer;
  memory.optimizer = static_cast<size_t>(std::min(owned, kOffloadWindow)) * state_bytes;
  if (zero.parameters) {
    memory.in_file += bytes(layout.shard_elements());
    memory.parameters = bytes(resident * largest + largest / layout.slices());
  }
  return memory;
}

}  // namespace trifold
