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
          builder,
          builder.sharded(name + ".weight", weight_shape(groups, out, in), groups == 1 ? 0 : 1, init, true),
          ProductWeight::Cut::Outputs),
      bias_(bias ? std::optional(builder.sharded(name + ".bias", bias_shape(groups, out), groups == 1 ? 0 : 1,
                                                 {Init::Kind::Zeros}, false))
                 : std::nullopt),
      adapters_(builder, name, weight_, groups, LowRank::Cut::Outputs),
      reads_input_(adapters_.any() || !builder.params()[weight_.id()].frozen),
      x_(builder.slot()),
      dy_(builder.slot()) {}

Tensor ColumnLinear::take_output(Run& run, Arena& from, Tensor x) const {
  return from.take(run.dtype, {region_.rows_inside(x.row_count()), weight_.rows()});
}

Tensor ColumnLinear::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor bias = bias_ ? run.weight(*bias_) : Tensor{};
  saved[x_] = x;
  const Tensor y = take_output(run, *run.keep, x);
  const Tensor z = adapters_.scales() ? take_output(run, *run.keep, x) : y;
  adapters_.reserve(run, y.row_count(), saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  column_product(run, z, all_x, weight_, adapters_.scales() ? Tensor{} : bias);
  adapters_.forward(run, z, all_x, saved);
  if (adapters_.scales()) adapters_.scale(run, y, z, bias, saved);
  run.show(name_, "output", y);
  run.scratch.release(mark);
  return y;
}

Tensor ColumnLinear::forward_activated(Run& run, Arena& keep, const Activation& activation, Tensor x,
                                       Saved& saved, bool in_8bit) const {
  if (activation.kind() != ActivationKind::Gelu || !bias_ || adapters_.any()) {
    Run activation_run = run.keeping_in(keep);
    return activation.forward_factor(activation_run, forward(run, x, saved), saved, in_8bit);
  }
  saved[x_] = x;
  const Tensor z = take_output(run, *run.keep, x);
  const Tensor y = run.take(keep, z.row_count(), z.last_dim(), in_8bit);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  run.ops.affine_gelu(run.stream, y, z, all_x, weight_.read(run), run.weight(*bias_).flat());
  run.show(name_, "output", z);
  run.scratch.release(mark);
  activation.take_over(run, z, y, saved);
  return y;
}

Tensor ColumnLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const ColumnGradient gradient{adapters_.begin_backward(run, dy, saved), &weight_, {}, {}};
  return input_gradient(region_, run, name_, {&gradient, 1},
                        [&](Tensor dx) { adapters_.backward_input(run, dx, saved); });
}

void ColumnLinear::backward_weight(Run& run, Saved& saved) const {
  if (adapters_.any()) {
    const Arena::Mark mark = run.scratch.mark();
    adapters_.backward_weight(run, region_.gather_rows(run, saved[x_], run.scratch, run.stream), saved);
    run.scratch.release(mark);
  }
  if (!run.trains(weight_.id())) return;
  const ColumnGradient gradient{saved[dy_], nullptr, run.grad(weight_.id()),
                                bias_ ? run.grad(*bias_) : Tensor{}, run.adds_to(weight_.id(), bias_)};
  weight_gradient(region_, run, {&gradient, 1}, saved[x_]);
}

Tensor ColumnLinear::backward(Run& run, Tensor dy, Saved& saved) const {
  if (!run.trains(weight_.id())) return Layer::backward(run, dy, saved);
  const ColumnGradient gradient{dy, &weight_, run.grad(weight_.id()), bias_ ? run.grad(*bias_) : Tensor{},
                                run.adds_to(weight_.id(), bias_)};
  return both_gradients(region_, run, name_, {&gradient, 1}, saved[x_]);
}

RowLinear::RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
                     bool bias)
    : name_(name),
      region_(builder),
      weight_(builder, builder.sharded(name + ".weight", {out, in}, 1, init, true),
              ProductWeight::Cut::Inputs),
      bias_(bias ? std::optional(builder.replicated(name + ".bias", {out}, {Init::Kind::Zeros}, false))
                 : std::nullopt),
      adapters_(builder, name, weight_, 1, LowRank::Cut::Inputs),
      reads_input_(adapters_.any() || !builder.params()[weight_.id()].frozen),
      x_(builder.slot()),
      dy_(builder.slot()) {}

Tensor RowLinear::forward(Run& run, Tensor x, Saved& saved) const {
  return forward_in(run, *run.keep, x, saved);
}

Tensor RowLinear::forward_in(Run& run, Arena& output, Tensor x, Saved& saved) const {
  saved[x_] = x;
  adapters_.reserve(run, x.row_count(), saved);
  const Tensor scaled =
      adapters_.scales() ? run.keep->take(run.dtype, {x.row_count(), weight_.rows()}) : Tensor{};
  const Region::Sum y = region_.take_sum(run, output, x.row_count(), weight_.rows());
  // The bias is added once, by the first rank of the axis.
  const Tensor bias = bias_ && run.mesh.coord(Axis::Tp) == 0 ? run.weight(*bias_) : Tensor{};
  const Tensor z = adapters_.scales() ? scaled : y.partial;
  column_product(run, z, x, weight_, adapters_.scales() ? Tensor{} : bias);
  adapters_.forward(run, z, x, saved);
  if (adapters_.scales()) adapters_.scale(run, y.partial, z, bias, saved);
  run.show(name_, "output", y.partial);
  region_.add_up(run, y, run.stream);
  run.show(name_, "summed output", y.result);
  run.scratch.release(y.mark);
  return y.result;
}

// A single rank computes the whole product and adds the residual as it writes the result.
Tensor RowLinear::forward_added(Run& run, Arena& output, const ResidualAdd& add, Tensor residual, Tensor x,
                                Saved& saved) const {
  if (!region_.alone() || !add.only_adds(run) || adapters_.scales()) {
    Run added = run.keeping_in(output);
    return add.forward(added, residual, forward_in(run, run.scratch, x, saved), saved);
  }
  saved[x_] = x;
  adapters_.reserve(run, x.row_count(), saved);
  const Tensor y = output.take(run.dtype, {x.row_count(), weight_.rows()});
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine_add(run.stream, y, residual, x, weight_.read(run), bias_ ? run.weight(*bias_) : Tensor{});
  run.scratch.release(mark);
  adapters_.forward(run, y, x, saved);
  add.show_sum(run, y);
  return y;
}

Tensor RowLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  const Tensor dz = adapters_.begin_backward(run, saved[dy_], saved);
  const Tensor dx = run.flow->take(run.dtype, {saved[dy_].row_count(), weight_.columns()});
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine_backward_input(run.stream, dx, dz, weight_.read(run), 0.0);
  run.scratch.release(mark);
  adapters_.backward_input(run, dx, saved);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor RowLinear::backward_input_activated(Run& run, const Activation& activation, Tensor dy, Saved& saved,
                                           bool in_8bit) const {
  if (activation.kind() != ActivationKind::Gelu || adapters_.any() || in_8bit)
    return activation.backward_input_factor(run, backward_input(run, dy, saved), saved, in_8bit);
  saved[dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  const Tensor dz = run.flow->take(run.dtype, {saved[dy_].row_count(), weight_.columns()});
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine_backward_gelu(run.stream, dz, saved[dy_], weight_.read(run), activation.input(saved));
  run.scratch.release(mark);
  activation.show_gradient(run, dz);
  return dz;
}

// Under sequence parallelism the bias's gradient sums this rank's rows of dy, and the weight's all gathered rows. Products
// of narrow factors would sum rounded elements; dy is wide here, so the exact ones are summed on every mesh.
void RowLinear::backward_weight(Run& run, Saved& saved) const {
  adapters_.backward_weight(run, saved[x_], saved);
  if (!run.trains(weight_.id())) return;
  const Tensor all = saved[dy_];
  const Tensor rank_rows = region_.own_rows(all);
  const bool apart = bias_ && (run.narrow || rank_rows.row_count() != all.row_count());
  const bool adds = run.adds_to(weight_.id(), bias_);
  run.ops.affine_backward_weight(run.stream, run.grad(weight_.id()),
                                 bias_ && !apart ? run.grad(*bias_) : Tensor{}, all, saved[x_], adds);
  if (apart) run.ops.column_sum(run.stream, run.grad(*bias_), rank_rows, adds);
}

}  // namespace trifold
