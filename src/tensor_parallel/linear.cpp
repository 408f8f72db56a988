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
      dy_(builder.slot()),
      sums_(builder.slot()) {}

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

void ColumnLinear::forward_activated(Run& run, const Forms& activated, const Activation& activation, Tensor x,
                                     Saved& saved) const {
  if (activation.kind() != ActivationKind::Gelu || !bias_ || adapters_.any())
    return activation.forward_to(run, activated, forward(run, x, saved), saved);
  saved[x_] = x;
  const Tensor z = take_output(run, *run.keep, x);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  run.ops.affine_gelu(run.stream, activated, z, all_x, weight_.read(run), run.weight(*bias_).flat());
  run.show(name_, "output", z);
  run.scratch.release(mark);
  activation.take_over(run, z, activated, saved);
}

Forms ColumnLinear::take_gradient(Run& run, int64_t rows) const {
  return trifold::take_gradient(run, rows, weight_.rows(), run.trains(weight_.id()), bias_.has_value());
}

// The forms of a wide dy that the products read.
Forms ColumnLinear::gradient_of(Run& run, Tensor dy) const {
  if (!reads_narrow(run) || is_narrow(dy)) return dy;
  const Forms forms = take_gradient(run, dy.row_count());
  run.ops.write_forms(run.stream, forms, dy);
  return forms;
}

Tensor ColumnLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return backward_input(run, gradient_of(run, dy), saved);
}

Tensor ColumnLinear::backward_input(Run& run, const Forms& dy, Saved& saved) const {
  saved[dy_] = is_present(dy.turned) ? dy.turned : dy.rows;
  saved[sums_] = dy.sums;
  const ColumnGradient gradient{adapters_.begin_backward(run, dy.rows, saved), &weight_, {}, {}};
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
  Forms dy = saved[dy_];
  dy.sums = saved[sums_];
  const ColumnGradient gradient{dy, nullptr, run.grad(weight_.id()), bias_ ? run.grad(*bias_) : Tensor{},
                                run.adds_to(weight_.id(), bias_)};
  weight_gradient(region_, run, {&gradient, 1}, saved[x_]);
}

Tensor ColumnLinear::backward(Run& run, Tensor dy, Saved& saved) const {
  return backward(run, gradient_of(run, dy), saved);
}

Tensor ColumnLinear::backward(Run& run, const Forms& dy, Saved& saved) const {
  if (!run.trains(weight_.id())) {
    const Tensor dx = backward_input(run, dy, saved);
    backward_weight(run, saved);
    return dx;
  }
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
      dy_(builder.slot()),
      sums_(builder.slot()),
      wide_dy_(builder.slot()) {}

Tensor RowLinear::forward(Run& run, Tensor x, Saved& saved) const {
  return forward_in(run, *run.keep, x, saved);
}

Forms RowLinear::take_input(Run& run, Arena& kept, int64_t rows, bool repeated) const {
  if (!reads_narrow(run)) return run.take(reads_input_ ? kept : run.scratch, rows, weight_.columns(), false);
  Forms x;
  if (turns(run) && !repeated) x.turned = kept.take(DType::U8, turned_shape(rows, weight_.columns()));
  x.rows = run.take(run.scratch, rows, weight_.columns(), true);
  return x;
}

Forms RowLinear::take_repeated(Run& run, Arena& kept, int64_t rows) const {
  return turns(run) ? kept.take(DType::U8, turned_shape(rows, weight_.columns()))
                    : run.take(kept, rows, weight_.columns(), reads_narrow(run));
}

// Keeps what a backward reads of x. For a wide x in 8 bits that is a turned form, which rows_of_input writes.
Forms RowLinear::kept_input(Run& run, const Forms& x, Saved& saved) const {
  Forms kept = x;
  if (reads_narrow(run) && x.are_wide() && turns(run))
    kept.turned = run.keep->take(DType::U8, turned_shape(x.rows.row_count(), weight_.columns()));
  saved[x_] = is_present(kept.turned) ? kept.turned : kept.rows;
  return kept;
}

// The rows that the product reads. A wide x in 8 bits is written in its forms by one pass, the rows to scratch.
Tensor RowLinear::rows_of_input(Run& run, Forms x) const {
  const Tensor given = x.rows;
  if (!reads_narrow(run) || is_narrow(given)) return given;
  x.rows = run.take(run.scratch, given.row_count(), weight_.columns(), true);
  run.ops.write_forms(run.stream, x, given);
  return x.rows;
}

Tensor RowLinear::forward_in(Run& run, Arena& output, const Forms& x, Saved& saved) const {
  const int64_t rows = x.rows.row_count();
  adapters_.reserve(run, rows, saved);
  const Tensor scaled = adapters_.scales() ? run.keep->take(run.dtype, {rows, weight_.rows()}) : Tensor{};
  const Forms kept = kept_input(run, x, saved);
  const Region::Sum y = region_.take_sum(run, output, rows, weight_.rows());
  const Tensor factor = rows_of_input(run, kept);
  // The bias is added once, by the first rank of the axis.
  const Tensor bias = bias_ && run.mesh.coord(Axis::Tp) == 0 ? run.weight(*bias_) : Tensor{};
  const Tensor z = adapters_.scales() ? scaled : y.partial;
  column_product(run, z, factor, weight_, adapters_.scales() ? Tensor{} : bias);
  adapters_.forward(run, z, factor, saved);
  if (adapters_.scales()) adapters_.scale(run, y.partial, z, bias, saved);
  run.show(name_, "output", y.partial);
  region_.add_up(run, y, run.stream);
  run.show(name_, "summed output", y.result);
  run.scratch.release(y.mark);
  return y.result;
}

// A single rank computes the whole product and adds the residual as it writes the result.
Tensor RowLinear::forward_added(Run& run, Arena& output, const ResidualAdd& add, Tensor residual,
                                const Forms& x, Saved& saved) const {
  if (!region_.alone() || !add.only_adds(run) || adapters_.scales()) {
    Run added = run.keeping_in(output);
    return add.forward(added, residual, forward_in(run, run.scratch, x, saved), saved);
  }
  adapters_.reserve(run, x.rows.row_count(), saved);
  const Forms kept = kept_input(run, x, saved);
  const Tensor y = output.take(run.dtype, {x.rows.row_count(), weight_.rows()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor factor = rows_of_input(run, kept);
  run.ops.affine_add(run.stream, y, residual, factor, weight_.read(run),
                     bias_ ? run.weight(*bias_) : Tensor{});
  run.scratch.release(mark);
  adapters_.forward(run, y, x.rows, saved);
  add.show_sum(run, y);
  return y;
}

// In 8 bits one pass over dy writes the rows that dx needs now, and the turned form and the sums that the gradients of
// the weight and the bias need later.
Tensor RowLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[wide_dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  Forms dz = adapters_.begin_backward(run, saved[wide_dy_], saved);
  const int64_t rows = dz.rows.row_count();
  const bool narrow = reads_narrow(run);
  if (narrow && run.trains(weight_.id())) {
    dz.turned = run.flow->take(DType::U8, turned_shape(rows, weight_.rows()));
    if (bias_ && !region_.slices()) dz.sums = run.flow->take(DType::F32, sums_shape(rows, weight_.rows()));
  }
  saved[dy_] = is_present(dz.turned) ? dz.turned : saved[wide_dy_];
  saved[sums_] = dz.sums;
  const Tensor dx = run.flow->take(run.dtype, {rows, weight_.columns()});
  const Arena::Mark mark = run.scratch.mark();
  if (narrow) {
    const Tensor wide = dz.rows;
    dz.rows = run.take(run.scratch, rows, weight_.rows(), true);
    run.ops.write_forms(run.stream, dz, wide);
  }
  run.ops.affine_backward_input(run.stream, dx, dz.rows, weight_.read(run), 0.0);
  run.scratch.release(mark);
  adapters_.backward_input(run, dx, saved);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor RowLinear::backward_input_activated(Run& run, const Activation& activation, Tensor dy,
                                           Saved& saved) const {
  if (activation.kind() != ActivationKind::Gelu || adapters_.any() || reads_narrow(run))
    return activation.backward_input(run, backward_input(run, dy, saved), saved);
  saved[wide_dy_] = saved[dy_] = region_.gather_rows(run, dy, *run.flow, run.stream);
  saved[sums_] = {};
  const Tensor dz = run.flow->take(run.dtype, {saved[dy_].row_count(), weight_.columns()});
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine_backward_gelu(run.stream, dz, saved[dy_], weight_.read(run), activation.input(saved));
  run.scratch.release(mark);
  activation.show_gradient(run, dz);
  return dz;
}

void RowLinear::backward_input_activated(Run& run, const Forms& dx, const Activation& activation, Tensor dy,
                                         Saved& saved) const {
  activation.backward_input_to(run, dx, backward_input(run, dy, saved), saved);
}

// Under sequence parallelism the bias's gradient sums this rank's rows of dy, and the weight's all gathered rows.
void RowLinear::backward_weight(Run& run, Saved& saved) const {
  adapters_.backward_weight(run, saved[x_], saved);
  if (!run.trains(weight_.id())) return;
  const Tensor rank_rows = region_.own_rows(saved[wide_dy_]);
  const bool apart = bias_ && region_.slices();
  const bool adds = run.adds_to(weight_.id(), bias_);
  Forms dy = saved[dy_];
  dy.sums = saved[sums_];
  run.ops.affine_backward_weight(run.stream, run.grad(weight_.id()),
                                 bias_ && !apart ? run.grad(*bias_) : Tensor{}, dy, saved[x_], adds);
  if (apart) run.ops.column_sum(run.stream, run.grad(*bias_), rank_rows, adds);
}

}  // namespace trifold
