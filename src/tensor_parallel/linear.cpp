#include "tensor_parallel/linear.h"

#include "tensor_parallel/column_product.h"

namespace trifold {

namespace {

Shape weight_shape(int64_t groups, int64_t out, int64_t in) {
  return groups == 1 ? Shape{out, in} : Shape{groups, out, in};
}

Shape bias_shape(int64_t groups, int64_t out) { return groups == 1 ? Shape{out} : Shape{groups, out}; }

}  // namespace

ColumnLinear::ColumnLinear(BlockBuilder& builder, const std::string& name, int64_t groups, int64_t out,
                           int64_t in, Init init, bool bias)
    : name_(name),
      region_(builder),
      weight_(
          builder.sharded(name + ".weight", weight_shape(groups, out, in), groups == 1 ? 0 : 1, init, true)),
      x_(builder.slot()),
      dy_(builder.slot()) {
  if (bias)
    bias_ = builder.sharded(name + ".bias", bias_shape(groups, out), groups == 1 ? 0 : 1, {Init::Kind::Zeros},
                            false);
}

Tensor ColumnLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Tensor y = run.keep.take(run.dtype, {region_.rows_inside(x.row_count()), w.row_count()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  column_product(run, y, all_x, w, bias_ ? run.weight(*bias_) : Tensor{});
  run.show(name_, "output", y);
  run.scratch.release(mark);
  return y;
}

Tensor ColumnLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const ColumnGradient gradient{dy, run.weight(weight_), {}};
  return input_gradient(region_, run, name_, {&gradient, 1});
}

void ColumnLinear::backward_weight(Run& run, Saved& saved) const {
  const ColumnGradient gradient{saved[dy_], {}, run.grad(weight_)};
  weight_gradient(region_, run, {&gradient, 1}, saved[x_]);
  if (bias_) run.ops.column_sum(run.stream, run.grad(*bias_).flat(), saved[dy_]);
}

Tensor ColumnLinear::backward(Run& run, Tensor dy, Saved& saved) const {
  if (bias_) run.ops.column_sum(run.stream, run.grad(*bias_).flat(), dy);
  const ColumnGradient gradient{dy, run.weight(weight_), run.grad(weight_)};
  return both_gradients(region_, run, name_, {&gradient, 1}, saved[x_]);
}

RowLinear::RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
                     bool bias)
    : name_(name),
      region_(builder),
      weight_(builder.sharded(name + ".weight", {out, in}, 1, init, true)),
      x_(builder.slot()),
      dy_(builder.slot()) {
  if (bias) bias_ = builder.replicated(name + ".bias", {out}, {Init::Kind::Zeros}, false);
}

Tensor RowLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Region::Sum y = region_.take_sum(run, run.keep, x.row_count(), w.row_count());
  // The bias enters the sum once: on the axis' first rank.
  const bool with_bias = bias_ && run.mesh.coord(Axis::Tp) == 0;
  if (with_bias) run.ops.fill_rows(run.stream, y.partial, run.weight(*bias_));
  run.ops.gemm(run.stream, y.partial, x, false, w, true, 1.0, with_bias ? 1.0 : 0.0);
  run.show(name_, "output", y.partial);
  region_.add_up(run, y, run.stream);
  run.show(name_, "summed output", y.result);
  run.scratch.release(y.mark);
  return y.result;
}

Tensor RowLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[dy_] = region_.gather_rows(run, dy, run.flow, run.stream);
  const Tensor dx = run.flow.take(run.dtype, {saved[dy_].row_count(), w.last_dim()});
  run.ops.gemm(run.stream, dx, saved[dy_], false, w, false, 1.0, 0.0);
  run.show(name_, "input gradient", dx);
  return dx;
}

void RowLinear::backward_weight(Run& run, Saved& saved) const {
  run.ops.gemm(run.stream, run.grad(weight_), saved[dy_], true, saved[x_], false, 1.0, 1.0);
  if (bias_) run.ops.column_sum(run.stream, run.grad(*bias_), region_.own_rows(saved[dy_]));
}

}  // namespace trifold
