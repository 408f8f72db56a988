#include "train/start/quantized_weights.h"

#include <optional>
#include <vector>

#include "checkpoint/tensor_kind.h"
#include "zero/quantized_segment.h"

namespace trifold {

void load_quantized(Replica& replica, std::span<const FlatLayout::Segment> segments, CheckpointReader& from) {
  const FlatLayout& layout = replica.layout().flat();
  const ParamStore& weights = replica.weights();
  for (const FlatLayout::Segment& segment : segments) {
    const ShardSpec& shard = layout.params()[segment.id].shard;
    NamedTensor wanted;
    wanted.spec.name = fmt::format("{}/{}", kWeightKind, shard.name);
    wanted.spec.global = shard.global;
    fill_quantized(
        layout, segment, weights.owned(segment),
        [&](const Rect& box, Tensor values) {
          wanted.spec.local = box;
          wanted.data = values;
          from.load({&wanted, 1}, FloatConversion::Allow);
        },
        replica.ops(), replica.compute());
    weights.release(segment);
  }
}

void load_quantized(Replica& replica, CheckpointReader& from) {
  const FlatLayout& layout = replica.layout().flat();
  std::vector<FlatLayout::Segment> held;
  for (const FlatLayout::Unit& unit : layout.units()) {
    if (!unit.quantized) continue;
    const auto slice =
        replica.weights().sharded() ? std::optional(replica.groups().slice(unit.data)) : std::nullopt;
    for (const FlatLayout::Segment& segment : layout.segments(unit, slice)) held.push_back(segment);
  }
  load_quantized(replica, held, from);
}

}  // namespace trifold
