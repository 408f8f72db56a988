#include "plan/goodput/checkpoint_bytes.h"

#include <algorithm>

#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

// Bytes that a checkpoint has for an element of a parameter.
class ElementBytes {
 public:
  ElementBytes(const RunSpec& run, const CheckpointConfig& checkpoint)
      : weight_(size_of(accumulate_type(run.dtype))),
        frozen_is_saved_(!run.model.adapters.lora_rank.has_value()) {
    if (!checkpoint.no_save_optim)
      state_ = ShardedOptimizer::bytes_per_element(run.optimizer, accumulate_type(run.dtype));
  }

  double of(const ParamSpec& param) const {
    if (param.tied_to || (param.frozen && !frozen_is_saved_)) return 0;
    return static_cast<double>(weight_ + (param.frozen || param.is_buffer ? 0 : state_));
  }

 private:
  size_t weight_, state_ = 0;
  bool frozen_is_saved_;
};

}  // namespace

CheckpointBytes checkpoint_bytes(const PlannedRun& planned, const CheckpointConfig& checkpoint) {
  const ElementBytes bytes(planned.run(), checkpoint);
  CheckpointBytes result;
  for (const ParamSpec& param : planned.cut().model.params.specs()) {
    Shape global = param.shard.global;
    if (param.rows) global[0] = *param.rows;
    result.all += bytes.of(param) * static_cast<double>(global.elements());
  }
  for (int rank = 0; rank < planned.sizes()[Axis::Pp]; ++rank) {
    const RankLayout& layout = planned.layout(rank);
    double held = 0;
    for (const FlatLayout::Unit& unit : layout.flat().units())
      for (const FlatLayout::Segment& segment : layout.owned(unit))
        if (layout.saves(segment.id))
          held += bytes.of(layout.params()[segment.id]) * static_cast<double>(segment.count);
    result.rank = std::max(result.rank, held);
  }
  return result;
}

}  // namespace trifold
