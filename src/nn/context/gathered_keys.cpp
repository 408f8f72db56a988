#include "nn/context/gathered_keys.h"

#include <algorithm>

#include "nn/context/context_rows.h"

namespace trifold {

GatheredKeys::GatheredKeys(const Mesh& mesh, int64_t heads, int64_t kv_heads, int64_t width, int threads)
    : parts_(mesh.size(Axis::Cp)),
      part_(mesh.coord(Axis::Cp)),
      heads_(heads),
      kv_heads_(kv_heads),
      width_(width),
      each_(heads_of_group(kv_heads, threads)) {}

int64_t GatheredKeys::heads_of_group(int64_t kv_heads, int threads) {
  constexpr int64_t kMostHeadGroups = 4;
  return std::min(kv_heads, std::max<int64_t>((kv_heads + kMostHeadGroups - 1) / kMostHeadGroups, threads));
}

GatheredKeys::Group GatheredKeys::group(int64_t index) const {
  const int64_t first = index * each_;
  return {first, std::min(each_, kv_heads_ - first)};
}

GatheredKeys::Memory GatheredKeys::take(Run& run, DType dtype) const {
  const Shape shape{rows_of_all(run), 2 * each_ * width_};
  return {run.scratch.take(dtype, shape), run.scratch.take(dtype, shape)};
}

GatheredKeys::Memory GatheredKeys::part_of(const Memory& whole, Group group) const {
  const int64_t rows = whole.in_order.row_count();
  const int64_t columns = 2 * group.count * width_;
  const auto part = [&](const Tensor& tensor) {
    return tensor.flat().rows(0, rows * columns).reshape({rows, columns});
  };
  return {part(whole.in_order), part(whole.by_rank)};
}

Tensor GatheredKeys::own_rows(Tensor by_rank) const {
  const int64_t rows = by_rank.row_count() / parts_;
  return by_rank.rows(part_ * rows, (part_ + 1) * rows);
}

Event GatheredKeys::start_gather(Run& run, const Memory& keys, Tensor packed, Group group) const {
  const Tensor own_keys = own_rows(keys.by_rank);
  const int64_t columns = group.count * width_;
  for (const int64_t kind : {0, 1})
    move_columns(run, own_keys, kind * columns, packed, (heads_ + kind * kv_heads_ + group.first) * width_,
                 columns);
  run.side.wait(run.stream.record());
  run.mesh.comm({Axis::Cp}).all_gather(keys.by_rank, own_keys, run.side);
  return run.side.record();
}

Event GatheredKeys::start_sum(Run& run, const Memory& gradients) const {
  to_ranks(run, gradients.by_rank, gradients.in_order);
  run.side.wait(run.stream.record());
  run.mesh.comm({Axis::Cp})
      .reduce_scatter(own_rows(gradients.by_rank), gradients.by_rank, Reduce::Sum, run.side);
  return run.side.record();
}

void GatheredKeys::store(Run& run, Tensor dpacked, const Memory& gradients, Group group) const {
  const Arena::Mark mark = run.scratch.mark();
  Tensor sums = own_rows(gradients.by_rank);
  if (sums.dtype != run.dtype) {
    const Tensor rounded = run.scratch.take(run.dtype, sums.shape);
    run.ops.convert(run.stream, rounded, sums);
    sums = rounded;
  }
  const int64_t columns = group.count * width_;
  for (const int64_t kind : {0, 1})
    move_columns(run, dpacked, (heads_ + kind * kv_heads_ + group.first) * width_, sums, kind * columns,
                 columns);
  run.scratch.release(mark);
}

void GatheredKeys::for_each_group(Run& run, Tensor packed, Attention attention,
                                  FunctionRef<GroupWork> work) const {
  const Memory all = take(run, run.dtype);
  const int64_t groups = (kv_heads_ + each_ - 1) / each_;
  Event gathered = start_gather(run, part_of(all, group(0)), packed, group(0));
  for (int64_t index = 0; index < groups; ++index) {
    const Group current = group(index);
    const Memory keys = part_of(all, current);
    run.stream.wait(gathered);
    to_order(run, keys.in_order, keys.by_rank);
    if (index + 1 < groups) {
      const Group next = group(index + 1);
      gathered = start_gather(run, part_of(all, next), packed, next);
    }
    attention.first_given = current.first;
    attention.given_heads = current.count;
    attention.key_values = keys.in_order;
    work(current, attention);
  }
}

void GatheredKeys::forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  for_each_group(run, packed, attention, [&](Group /*current*/, const Attention& given) {
    run.ops.attention(run.stream, out, lse, packed, given);
  });
  run.scratch.release(mark);
}

void GatheredKeys::backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                            Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  const Memory sums = take(run, accumulate_type(run.dtype));
  Group previous{0, 0};
  Event summed;  // completes with the gradients of `previous`
  const auto store_previous = [&] {
    run.stream.wait(summed);
    store(run, dpacked, part_of(sums, previous), previous);
  };
  for_each_group(run, packed, attention, [&](Group current, Attention given) {
    const Memory gradients = part_of(sums, current);
    given.dkey_values = gradients.in_order;
    run.ops.attention_backward(run.stream, dpacked, dout, packed, out, lse, given);
    if (previous.count > 0) store_previous();
    previous = current;
    summed = start_sum(run, gradients);
  });
  store_previous();
  run.scratch.release(mark);
}

}  // namespace trifold
