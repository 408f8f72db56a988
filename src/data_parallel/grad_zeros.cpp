#include "data_parallel/grad_zeros.h"

#include <algorithm>

#include "data_parallel/grad_norm.h"
#include "ops/strided.h"

namespace trifold {

namespace {

constexpr int64_t kPart = int64_t{1} << 20;  // elements

// The elements of the local box that are not padding. Padding is at the end of the first dim, and therefore of the box.
int64_t real_elements(const ParamList& params, ParamId id) {
  const Rect& local = params[id].shard.local;
  const std::optional<int64_t> rows = params[params[id].tied_to.value_or(id)].rows;
  if (!rows || local.elements() == 0) return local.elements();
  const int64_t real = std::clamp<int64_t>(*rows - local.offset[0], 0, local.extent[0]);
  return real * (local.elements() / local.extent[0]);
}

}  // namespace

GradZeros::GradZeros(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh,
                     const OpTable& ops, DType dtype)
    : grads_(grads),
      mesh_(mesh),
      ops_(ops),
      dtype_(dtype),
      total_(Buffer::shared(sizeof(double), ops.device)) {
  int64_t largest = 0;
  for (const FlatLayout::Unit& unit : layout.units())
    for (FlatLayout::Segment segment : counted_segments(layout, unit, grads, mesh)) {
      segment.count = std::min(segment.count, real_elements(layout.params(), segment.id) - segment.first);
      if (segment.count <= 0) continue;
      counted_.push_back(segment);
      largest = std::max(largest, segment.count);
    }
  marks_ = Buffer(static_cast<size_t>(std::min(largest, kPart)) * size_of(dtype), ops.device);
}

// Sums of ones are exact in f64 up to 2^53.
int64_t GradZeros::count(Stream& stream) {
  const Tensor total = total_.tensor(DType::F64, {1});
  *total.as<double>() = 0;  // no longer in use: the last call waited for it
  for (const FlatLayout::Segment& segment : counted_) {
    const Tensor sums = grads_.summed(segment);
    for (int64_t begin = 0; begin < segment.count; begin += kPart) {
      const int64_t size = std::min(kPart, segment.count - begin);
      Map map;
      map.op = MapOp::IsZero;
      map.box = {1, {size}};
      map.from[0] = contiguous_view(map.box);
      const Tensor marks = marks_.tensor(dtype_, {size});
      const Tensor part = sums.rows(begin, begin + size);
      ops_.map(stream, marks, {&part, 1}, map);
      ops_.sum_squares(stream, total, marks);
    }
  }
  stream.synchronize();
  double zeros = *total.as<double>();
  Stream host = stream.host();
  mesh_.world().all_reduce({&zeros, DType::F64, {1}}, Reduce::Sum, host);
  return static_cast<int64_t>(zeros);
}

}  // namespace trifold
