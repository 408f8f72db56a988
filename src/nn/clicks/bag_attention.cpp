#include "nn/clicks/bag_attention.h"

namespace trifold {

namespace {

std::vector<int64_t> attention_widths(int64_t width, std::span<const int64_t> rest) {
  check(!rest.empty() && rest.back() == 1, "the last width of the attention MLP must be 1");
  std::vector<int64_t> all{4 * width};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

Tensor of_type(Run& run, Arena& arena, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor y = arena.take(dtype, x.shape);
  run.ops.convert(run.stream, y, x);
  return y;
}

}  // namespace

BagAttention::BagAttention(BlockBuilder& builder, const std::string& name, int64_t width, int64_t vectors,
                           std::span<const int64_t> widths)
    : width_(width),
      vectors_(vectors),
      mlp_(builder, name, attention_widths(width, widths), true, false),
      candidates_(builder.slot()),
      bag_(builder.slot()),
      factors_(builder.slot()),
      take_bag_(column_copy(0, width, vectors * width)),
      give_bag_(column_copy(width, 0, vectors * width)) {
  for (int64_t k = 0; k < vectors; ++k) {
    repeat_.push_back(column_copy(k * width, 0, width));
    sum_.push_back(column_copy(0, k * width, width, k > 0));
  }
  for (int64_t part = 0; part < 4; ++part) {
    parts_.push_back(column_copy(part * width, 0, width));
    parts_back_.push_back(column_copy(0, part * width, width));
  }
}

// The first D columns of x [B, >= D], K times: [B K, D].
Tensor BagAttention::repeated(Run& run, Arena& arena, const Tensor& x) const {
  const Tensor all = arena.take(x.dtype, {x.row_count(), vectors_ * width_});
  run.ops.copy_columns(run.stream, all, x, repeat_);
  return all.reshape({x.row_count() * vectors_, width_});
}

// y = a b, by element.
void BagAttention::product(Run& run, const Tensor& y, const Tensor& a, const Tensor& b) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor zeros = run.scratch.take(y.dtype, y.shape);
  run.ops.fill(run.stream, zeros, 0);
  run.ops.cross(run.stream, y, a, b, zeros);
  run.scratch.release(mark);
}

void BagAttention::subtract(Run& run, const Tensor& y, const Tensor& x) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor negative = run.scratch.take(x.dtype, x.shape);
  run.ops.copy(run.stream, negative, x);
  run.ops.scale(run.stream, negative, -1.0);
  run.ops.add(run.stream, y, y, negative);
  run.scratch.release(mark);
}

// Columns of y = the sum over the bag of x [B K, D].
void BagAttention::add_up(Run& run, const Tensor& y, const Tensor& x,
                          std::span<const ColumnCopy> where) const {
  run.ops.copy_columns(run.stream, y, x.reshape({y.row_count(), vectors_ * width_}), where);
}

Tensor BagAttention::ones(Run& run, DType dtype) const {
  const Tensor ones = run.scratch.take(dtype, {width_, 1});
  run.ops.fill(run.stream, ones, 1);
  return ones;
}

Tensor BagAttention::forward(Run& run, Tensor x, Saved& saved) const {
  const int64_t samples = x.row_count();
  const Shape each{samples * vectors_, width_};
  const Tensor c = saved[candidates_] = repeated(run, *run.keep, x);
  const Tensor all = run.keep->take(x.dtype, {samples, vectors_ * width_});
  run.ops.copy_columns(run.stream, all, x, {&take_bag_, 1});
  const Tensor h = saved[bag_] = all.reshape(each);
  const Tensor seen = run.keep->take(x.dtype, {each[0], 4 * width_});
  Arena::Mark mark = run.scratch.mark();
  const Tensor other = run.scratch.take(x.dtype, each);
  run.ops.copy_columns(run.stream, seen, c, {&parts_[0], 1});
  run.ops.copy_columns(run.stream, seen, h, {&parts_[1], 1});
  run.ops.copy(run.stream, other, c);
  subtract(run, other, h);
  run.ops.copy_columns(run.stream, seen, other, {&parts_[2], 1});
  product(run, other, c, h);
  run.ops.copy_columns(run.stream, seen, other, {&parts_[3], 1});
  run.scratch.release(mark);
  const Tensor a =
      of_type(run, *run.keep, mlp_.forward(run, of_type(run, *run.keep, seen, run.dtype), saved), x.dtype);
  const Tensor factors = saved[factors_] = run.keep->take(x.dtype, each);
  const Tensor y = run.keep->take(x.dtype, {samples, width_});
  mark = run.scratch.mark();
  run.ops.gemm(run.stream, factors, a, false, ones(run, x.dtype), true, 1, 0);
  const Tensor weighted = run.scratch.take(x.dtype, each);
  product(run, weighted, factors, h);
  add_up(run, y, weighted, sum_);
  run.scratch.release(mark);
  return y;
}

Tensor BagAttention::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor &c = saved[candidates_], &h = saved[bag_], &factors = saved[factors_];
  const Tensor dx = run.flow->take(dy.dtype, {dy.row_count(), (1 + vectors_) * width_});
  const Tensor dc = run.flow->take(dy.dtype, h.shape), dh = run.flow->take(dy.dtype, h.shape);
  const Tensor da = run.flow->take(dy.dtype, {h.row_count(), 1});
  const Tensor each = repeated(run, *run.flow, dy);
  Arena::Mark mark = run.scratch.mark();
  const Tensor other = run.scratch.take(dy.dtype, h.shape);
  product(run, other, each, h);
  run.ops.gemm(run.stream, da, other, false, ones(run, dy.dtype), false, 1, 0);
  product(run, dh, each, factors);
  run.scratch.release(mark);
  const Tensor dseen = of_type(
      run, *run.flow, mlp_.backward_input(run, of_type(run, *run.flow, da, run.dtype), saved), dy.dtype);
  mark = run.scratch.mark();
  const Tensor part = run.scratch.take(dy.dtype, h.shape), sum = run.scratch.take(dy.dtype, h.shape);
  const auto take = [&](size_t which) {
    run.ops.copy_columns(run.stream, part, dseen, {&parts_back_[which], 1});
  };
  run.ops.copy_columns(run.stream, dc, dseen, {&parts_back_[0], 1});
  take(1);
  run.ops.add(run.stream, dh, dh, part);
  take(2);
  run.ops.add(run.stream, dc, dc, part);
  subtract(run, dh, part);
  take(3);
  run.ops.cross(run.stream, sum, part, h, dc);
  add_up(run, dx, sum, sum_);
  run.ops.cross(run.stream, sum, part, c, dh);
  run.ops.copy_columns(run.stream, dx, sum.reshape({dy.row_count(), vectors_ * width_}), {&give_bag_, 1});
  run.scratch.release(mark);
  return dx;
}

void BagAttention::backward_weight(Run& run, Saved& saved) const { mlp_.backward_weight(run, saved); }

}  // namespace trifold
