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

Tensor ColumnLinear::take_output(Run& run, Arena& from, Tensor x) const {
  return from.take(run.dtype, {region_.rows_inside(x.row_count()), run.weight(weight_).row_count()});
}

Tensor ColumnLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Tensor y = take_output(run, *run.keep, x);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  column_product(run, y, all_x, w, bias_ ? run.weight(*bias_) : Tensor{});
  run.show(name_, "output", y);
  run.scratch.release(mark);
  return y;
}

Tensor ColumnLinear::forward_activated(Run& run, Arena& keep, const Activation& activation, Tensor x,
                                       Saved& saved) const {
  if (activation.kind() != ActivationKind::Gelu || !bias_) {
    Run activation_run = run.keeping_in(keep);
    return activation.forward(activation_run, forward(run, x, saved), saved);
  }
  saved[x_] = x;
  const Tensor z = take_output(run, *run.keep, x);
  const Tensor y = take_output(run, keep, x);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  run.ops.affine_gelu(run.stream, y, z, all_x, run.weight(weight_), run.weight(*bias_).flat());
  run.show(name_, "output", z);
  run.scratch.release(mark);
  activation.take_over(run, z, y, saved);
  return y;
}

Tensor ColumnLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const ColumnGradient gradient{dy, run.weight(weight_), {}, {}};
  return input_gradient(region_, run, name_, {&gradient, 1});
}

void ColumnLinear::backward_weight(Run& run, Saved& saved) const {
  const ColumnGradient gradient{
      saved[dy_], {}, run.grad(weight_), bias_ ? run.grad(*bias_) : Tensor{}, run.adds_to(weight_, bias_)};
  weight_gradient(region_, run, {&gradient, 1}, saved[x_]);
}

Tensor ColumnLinear::backward(Run& run, Tensor dy, Saved& saved) const {
  const ColumnGradient gradient{dy, run.weight(weight_), run.grad(weight_),
                                bias_ ? run.grad(*bias_) : Tensor{}, run.adds_to(weight_, bias_)};
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
  const Region::Sum y = region_.take_sum(run, *run.keep, x.row_count(), w.row_count());
  // The bias is added once, by the first rank of the axis.
  const bool biased = bias_ && run.mesh.coord(Axis::Tp) == 0;
  run.ops.affine(run.stream, y.partial, x, w, biased ? run.weight(*bias_) : Tensor{});
  run.show(name_, "output", y.partial);
  region_.add_up(run, y, run.stream);
  run.show(name_, "summed output", y.result);
  run.scratch.release(y.mark);
  return y.result;
}

// A single rank computes the whole product and adds the residual as it writes the result.
Tensor RowLinear::forward_added(Run& run, const ResidualAdd& add, Tensor residual, Tensor x,
                                Saved& saved) const {
  if (!region_.alone() || !add.only_adds(run)) {
    Run brief = run.keeping_in(run.scratch);
    return add.forward(run, residual, forward(brief, x, saved), saved);
  }
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  const Tensor y = run.keep->take(run.dtype, {x.row_count(), w.row_count()});
  run.ops.affine_add(run.stream, y, residual, x, w, bias_ ? run.weight(*bias_) : Tensor{});
  add.show_sum(run, y);
  return y;
}

Tensor RowLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor w = run.weight(weight_);
  saved[dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  const Tensor dx = run.flow->take(run.dtype, {saved[dy_].row_count(), w.last_dim()});
  run.ops.affine_backward_input(run.stream, dx, saved[dy_], w, 0.0);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor RowLinear::backward_input_activated(Run& run, const Activation& activation, Tensor dy,
                                           Saved& saved) const {
  if (activation.kind() != ActivationKind::Gelu)
    return activation.backward_input(run, backward_input(run, dy, saved), saved);
  const Tensor w = run.weight(weight_);
  saved[dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  const Tensor dz = run.flow->take(run.dtype, {saved[dy_].row_count(), w.last_dim()});
  run.ops.affine_backward_gelu(run.stream, dz, saved[dy_], w, activation.input(saved));
  activation.show_gradient(run, dz);
  return dz;
}

// Under sequence parallelism the bias's gradient sums this rank's rows of dy, and the weight's all gathered rows.
void RowLinear::backward_weight(Run& run, Saved& saved) const {
  const Tensor all = saved[dy_];
  const Tensor rank_rows = region_.own_rows(all);
  const bool apart = bias_ && rank_rows.row_count() != all.row_count();
  const bool adds = run.adds_to(weight_, bias_);
  run.ops.affine_backward_weight(run.stream, run.grad(weight_), bias_ && !apart ? run.grad(*bias_) : Tensor{},
                                 all, saved[x_], adds);
  if (apart) run.ops.column_sum(run.stream, run.grad(*bias_), rank_rows, adds);
}

}  // namespace trifold
