#include "nn/batch_norm.h"

namespace trifold {

namespace {

const WholeBatch& whole_of(const Run& run) { return static_cast<const WholeBatch&>(*run.batch->part); }

}  // namespace

BatchNorm::BatchNorm(BlockBuilder& builder, const std::string& name, int64_t columns, int64_t first)
    : columns_(columns),
      first_(first),
      weight_(builder.replicated(name + ".weight", {columns}, {Init::Kind::Ones}, false)),
      bias_(builder.replicated(name + ".bias", {columns}, {Init::Kind::Zeros}, false)),
      normal_(builder.slot()),
      factors_(builder.slot()) {}

// Row 0: means, row 1: variances.
Tensor BatchNorm::of_layer(const Tensor& statistics, int64_t row) const {
  const int64_t at = row * statistics.last_dim() + first_;
  return statistics.flat(at, at + columns_);
}

Tensor BatchNorm::exact(Run& run, Arena& arena, const Tensor& x) const {
  const DType dtype = accumulate_type(run.dtype);
  if (x.dtype == dtype) return x;
  const Tensor y = arena.take(dtype, x.shape);
  run.ops.convert(run.stream, y, x);
  return y;
}

// Sums over the ranks, and divides by the number of real samples.
void BatchNorm::sum(Run& run, const Tensor& sums) const {
  if (whole_of(run).ranks != nullptr) whole_of(run).ranks->all_reduce(sums, Reduce::Sum, run.stream);
  run.ops.scale(run.stream, sums, run.loss_factor());
}

// y = a b, by element.
void BatchNorm::product(Run& run, const Tensor& y, const Tensor& a, const Tensor& b) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor zeros = run.scratch.take(y.dtype, y.shape);
  run.ops.fill(run.stream, zeros, 0);
  run.ops.cross(run.stream, y, a, b, zeros);
  run.scratch.release(mark);
}

void BatchNorm::scale_columns(Run& run, const Tensor& y, const Tensor& x, const Tensor& factors) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = run.scratch.take(y.dtype, y.shape);
  run.ops.fill_rows(run.stream, rows, factors);
  product(run, y, x, rows);
  run.scratch.release(mark);
}

// y = x - mean, for every row.
void BatchNorm::center(Run& run, const Tensor& y, const Tensor& x, const Tensor& mean) const {
  run.ops.fill_rows(run.stream, y, mean);
  run.ops.scale(run.stream, y, -1.0);
  run.ops.add(run.stream, y, y, x);
}

// The mean comes first, because the variance sums squares of differences from it.
void BatchNorm::moments(Run& run, const Tensor& mean, const Tensor& variance, const Tensor& x) const {
  const Tensor& real = whole_of(run).real;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor centered = run.scratch.take(x.dtype, x.shape), squares = run.scratch.take(x.dtype, x.shape);
  run.ops.gemm(run.stream, mean.reshape({1, columns_}), real, true, x, false, 1, 0);
  sum(run, mean);
  center(run, centered, x, mean);
  product(run, squares, centered, centered);
  run.ops.gemm(run.stream, variance.reshape({1, columns_}), real, true, squares, false, 1, 0);
  sum(run, variance);
  run.scratch.release(mark);
}

Tensor BatchNorm::forward(Run& run, const Tensor& x, Saved& saved) const {
  const WholeBatch& whole = whole_of(run);
  const Tensor exact_x = exact(run, *run.keep, x);
  const DType dtype = exact_x.dtype;
  const Tensor normal = saved[normal_] = run.keep->take(dtype, x.shape);
  const Tensor factors = saved[factors_] = run.keep->take(dtype, {columns_});
  const Tensor y = run.keep->take(run.dtype, x.shape);
  Tensor mean = of_layer(whole.running, 0), variance = of_layer(whole.running, 1);
  if (run.training) {
    mean = of_layer(whole.latest, 0);
    variance = of_layer(whole.latest, 1);
    moments(run, mean, variance, exact_x);
  }
  const Arena::Mark mark = run.scratch.mark();
  const Tensor rstd = run.scratch.take(dtype, {columns_});
  const Tensor result = run.scratch.take(dtype, x.shape), bias = run.scratch.take(dtype, x.shape);
  const Tensor rows = run.scratch.take(dtype, x.shape);
  run.ops.inverse_root(run.stream, rstd, variance, kEps);
  center(run, result, exact_x, mean);
  scale_columns(run, normal, result, rstd);
  const Tensor weight = exact(run, run.scratch, run.weight(weight_));
  product(run, factors, weight, rstd);
  run.ops.fill_rows(run.stream, rows, weight);
  run.ops.fill_rows(run.stream, bias, exact(run, run.scratch, run.weight(bias_)));
  run.ops.cross(run.stream, result, normal, rows, bias);
  (dtype == run.dtype ? run.ops.copy : run.ops.convert)(run.stream, y, result);
  run.scratch.release(mark);
  return y;
}

// dx = weight rstd (dy - sum(dy) / N - normal sum(dy normal) / N), with N real samples; zero for padding, which is in
// no statistic.
Tensor BatchNorm::backward_input(Run& run, const Tensor& dy, Saved& saved) const {
  const Tensor& real = whole_of(run).real;
  const Tensor& normal = saved[normal_];
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  const Tensor exact_dy = exact(run, *run.flow, dy);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sums = run.scratch.take(normal.dtype, {2, columns_});
  const Tensor inner = run.scratch.take(normal.dtype, dy.shape),
               part = run.scratch.take(normal.dtype, dy.shape);
  product(run, inner, exact_dy, normal);
  run.ops.column_sum(run.stream, run.grad(bias_), exact_dy, run.adds_to(bias_));
  run.ops.column_sum(run.stream, run.grad(weight_), inner, run.adds_to(weight_));
  run.ops.column_sum(run.stream, sums.rows(0, 1).flat(), exact_dy, false);
  run.ops.column_sum(run.stream, sums.rows(1, 2).flat(), inner, false);
  sum(run, sums);
  run.ops.gemm(run.stream, inner, real, false, sums.rows(1, 2), false, 1, 0);
  product(run, part, inner, normal);
  run.ops.gemm(run.stream, part, real, false, sums.rows(0, 1), false, 1, 1);
  run.ops.scale(run.stream, part, -1.0);
  run.ops.add(run.stream, part, part, exact_dy);
  scale_columns(run, inner, part, saved[factors_]);
  (inner.dtype == run.dtype ? run.ops.copy : run.ops.convert)(run.stream, dx, inner);
  run.scratch.release(mark);
  return dx;
}

}  // namespace trifold
