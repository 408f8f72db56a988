#include "layout/checkpoint_boxes.h"

#include <algorithm>

namespace trifold {

std::vector<StoredBox> stored_boxes(const ParamList& params, std::string_view kind,
                                    const FlatLayout::Segment& segment) {
  const ParamSpec& param = params[params[segment.id].tied_to.value_or(segment.id)];
  ShardSpec spec = param.shard;
  spec.name = fmt::format("{}/{}", kind, spec.name);
  spec.replicated = {};
  if (param.rows) spec.global[0] = *param.rows;
  std::vector<StoredBox> boxes;
  int64_t done = 0;
  for (const Rect& rect : rects_of_range(param.shard.local, segment.first, segment.first + segment.count)) {
    const int64_t first = done;
    done += rect.elements();
    spec.local = rect;
    // Padding is at the end of the first dim, and therefore of the box.
    if (param.rows)
      spec.local.extent[0] = std::clamp<int64_t>(*param.rows - rect.offset[0], 0, rect.extent[0]);
    if (spec.local.elements() > 0) boxes.push_back({spec, first});
  }
  return boxes;
}

std::vector<NamedTensor> stored_tensors(const ParamList& params, const ShardedOptimizer& optimizer,
                                        FunctionRef<bool(ParamId)> wanted) {
  std::vector<NamedTensor> tensors;
  for (const ShardedOptimizer::Piece& piece : optimizer.pieces()) {
    if (!wanted(piece.segment.id)) continue;
    for (StoredBox& box : stored_boxes(params, piece.kind, piece.segment)) {
      const Shape& extent = box.spec.local.extent;
      tensors.push_back(
          {box.spec, piece.values.rows(box.first, box.first + extent.elements()).reshape(extent)});
    }
  }
  return tensors;
}

}  // namespace trifold
