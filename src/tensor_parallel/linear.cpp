#include "tensor_parallel/linear.h"

namespace trifold {

namespace {

// Sums a tensor over the tensor axis, where there is more than one rank on it.
void sum_over_axis(Run& run, Tensor t) {
  if (run.mesh.size(Axis::Tp) > 1) run.mesh.comm({Axis::Tp}).all_reduce(t, Reduce::Sum, run.stream);
}

Shape weight_shape(int64_t groups, int64_t out, int64_t in) {
  return groups == 1 ? Shape{out, in} : Shape{groups, out, in};
}

Shape bias_shape(int64_t groups, int64_t out) { return groups == 1 ? Shape{out} : Shape{groups, out}; }

Tensor as_row(Tensor t) { return t.reshape({t.elements()}); }

}  // namespace

ColumnLinear::ColumnLinear(BlockBuilder& builder, const std::string& name, int64_t groups, int64_t out,
                           int64_t in, Init init)
    : weight_(
          builder.sharded(name + ".weight", weight_shape(groups, out, in), groups == 1 ? 0 : 1, init, true)),
      bias_(builder.sharded(name + ".bias", bias_shape(groups, out), groups == 1 ? 0 : 1, {Init::Kind::Zeros},
                            false)),
      x_(builder.slot()),
      dy_(builder.slot()) {}

Tensor ColumnLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Tensor y = run.keep.take(run.dtype, {x.row_count(), w.row_count()});
  run.ops.fill_rows(run.stream, y, as_row(run.weight(bias_)));
  run.ops.gemm(run.stream, y, x, false, w, true, 1.0, 1.0);
  return y;
}

Tensor ColumnLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[dy_] = dy;
  const Tensor dx = run.flow.take(run.dtype, {dy.row_count(), w.last_dim()});
  run.ops.gemm(run.stream, dx, dy, false, w, false, 1.0, 0.0);
  sum_over_axis(run, dx);
  return dx;
}

void ColumnLinear::backward_weight(Run& run, Saved& saved) const {
  run.ops.gemm(run.stream, run.grad(weight_), saved[dy_], true, saved[x_], false, 1.0, 1.0);
  run.ops.column_sum(run.stream, as_row(run.grad(bias_)), saved[dy_]);
}

RowLinear::RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init)
    : weight_(builder.sharded(name + ".weight", {out, in}, 1, init, true)),
      bias_(builder.replicated(name + ".bias", {out}, {Init::Kind::Zeros}, false)),
      x_(builder.slot()),
      dy_(builder.slot()) {}

Tensor RowLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Tensor y = run.keep.take(run.dtype, {x.row_count(), w.row_count()});
  // The bias enters the sum once: on the axis' first rank.
  const bool with_bias = run.mesh.coord(Axis::Tp) == 0;
  if (with_bias) run.ops.fill_rows(run.stream, y, run.weight(bias_));
  run.ops.gemm(run.stream, y, x, false, w, true, 1.0, with_bias ? 1.0 : 0.0);
  sum_over_axis(run, y);
  return y;
}

Tensor RowLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[dy_] = dy;
  const Tensor dx = run.flow.take(run.dtype, {dy.row_count(), w.last_dim()});
  run.ops.gemm(run.stream, dx, dy, false, w, false, 1.0, 0.0);
  return dx;
}

void RowLinear::backward_weight(Run& run, Saved& saved) const {
  run.ops.gemm(run.stream, run.grad(weight_), saved[dy_], true, saved[x_], false, 1.0, 1.0);
  run.ops.column_sum(run.stream, run.grad(bias_), saved[dy_]);
}

}  // namespace trifold
