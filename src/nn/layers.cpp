#include "nn/layers.h"

#include <algorithm>
#include <cmath>

namespace trifold {

Init initial_gain(const NormForm& form) {
  check(form.gain_offset == 0 || form.gain_offset == 1, "the offset of gains is {}, not 0 or 1",
        form.gain_offset);
  return {form.gain_offset == 1 ? Init::Kind::Zeros : Init::Kind::Ones};
}

Norm::Norm(BlockBuilder& builder, const std::string& name, int64_t width, const NormForm& form, bool inside)
    : name_(name),
      form_(form),
      width_(width),
      gain_(builder.replicated(name + ".gain", {width}, initial_gain(form), false, inside)),
      x_(builder.slot()),
      mean_(builder.slot()),
      rstd_(builder.slot()),
      dy_(builder.slot()) {
  if (form.has_bias())
    bias_ = builder.replicated(name + ".bias", {width}, {Init::Kind::Zeros}, false, inside);
}

Tensor Norm::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep->take(run.dtype, x.shape);
  forward_to(run, y, x, saved);
  return y;
}

Tensor Norm::forward_factor(Run& run, Tensor x, Saved& saved, bool in_8bit) const {
  if (!in_8bit) return forward(run, x, saved);
  const Tensor y = run.take(*run.keep, x.row_count(), x.last_dim(), in_8bit);
  forward_to(run, y, x, saved);
  return y;
}

void Norm::take_statistics(Run& run, int64_t rows, Saved& saved) const {
  const DType wide = accumulate_type(run.dtype);
  if (form_.kind == Normalization::LayerNorm) saved[mean_] = run.keep->take(wide, {rows});
  saved[rstd_] = run.keep->take(wide, {rows});
}

// Without a bias the operations get zeros, and their sums of its gradient are dropped: a row of C numbers, for which the
// operations of every back end need no second form.
Tensor Norm::bias_or_zeros(Run& run) const {
  if (form_.has_bias()) return run.weight(bias_);
  const Tensor zeros = run.scratch.take(run.dtype, {width_});
  run.ops.fill(run.stream, zeros, 0.0);
  return zeros;
}

Tensor Norm::bias_gradient(Run& run) const {
  if (form_.has_bias()) return run.grad(bias_);
  const Tensor dropped = run.scratch.take(accumulate_type(run.dtype), {width_});
  run.ops.fill(run.stream, dropped, 0.0);
  return dropped;
}

void Norm::apply(Run& run, Tensor y, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Arena::Mark mark = run.scratch.mark();
  if (form_.kind == Normalization::LayerNorm)
    run.ops.layer_norm(run.stream, y, saved[mean_], saved[rstd_], x, run.weight(gain_), bias_or_zeros(run),
                       form_.eps, form_.gain_offset);
  else
    run.ops.rms_norm(run.stream, y, saved[rstd_], x, run.weight(gain_), form_.eps, form_.gain_offset);
  run.scratch.release(mark);
  run.show(name_, "output", y);
}

Tensor Norm::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  if (form_.kind == Normalization::LayerNorm)
    run.ops.layer_norm_backward(run.stream, dx, dy, saved[x_], saved[mean_], saved[rstd_], run.weight(gain_),
                                form_.gain_offset);
  else
    run.ops.rms_norm_backward(run.stream, dx, dy, saved[x_], saved[rstd_], run.weight(gain_),
                              form_.gain_offset);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor Norm::backward_input_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const {
  saved[dy_] = dy;
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  if (form_.kind == Normalization::LayerNorm)
    run.ops.layer_norm_backward_add(run.stream, dx, residual, dy, saved[x_], saved[mean_], saved[rstd_],
                                    run.weight(gain_), form_.gain_offset);
  else
    run.ops.rms_norm_backward_add(run.stream, dx, residual, dy, saved[x_], saved[rstd_], run.weight(gain_),
                                  form_.gain_offset);
  return dx;
}

Tensor Norm::backward(Run& run, Tensor dy, Saved& saved) const {
  if (!run.trains(gain_)) return backward_input(run, dy, saved);
  const Tensor dx = backward_added(run, dy, {}, saved);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor Norm::backward_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const {
  if (!run.trains(gain_))
    return residual.rank() > 0 ? backward_input_added(run, dy, residual, saved)
                               : backward_input(run, dy, saved);
  saved[dy_] = dy;
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  const bool adds = adds_to_gradients(run);
  const Arena::Mark mark = run.scratch.mark();
  if (form_.kind == Normalization::LayerNorm)
    run.ops.layer_norm_backward_all(run.stream, dx, run.grad(gain_), bias_gradient(run), residual, dy,
                                    saved[x_], saved[mean_], saved[rstd_], run.weight(gain_), adds,
                                    form_.gain_offset);
  else
    run.ops.rms_norm_backward_all(run.stream, dx, run.grad(gain_), residual, dy, saved[x_], saved[rstd_],
                                  run.weight(gain_), adds, form_.gain_offset);
  run.scratch.release(mark);
  return dx;
}

void Norm::backward_weight(Run& run, Saved& saved) const {
  if (!run.trains(gain_)) return;
  const bool adds = adds_to_gradients(run);
  const Arena::Mark mark = run.scratch.mark();
  if (form_.kind == Normalization::LayerNorm)
    run.ops.layer_norm_backward_weight(run.stream, run.grad(gain_), bias_gradient(run), saved[dy_], saved[x_],
                                       saved[mean_], saved[rstd_], adds);
  else
    run.ops.rms_norm_backward_weight(run.stream, run.grad(gain_), saved[dy_], saved[x_], saved[rstd_], adds);
  run.scratch.release(mark);
}

void Activation::take_over(Run& run, Tensor x, const Forms& y, Saved& saved) const {
  saved[x_] = x;
  run.show(name_, "output", y.rows);
}

Tensor Activation::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep->take(run.dtype, {x.row_count(), columns_out(x.last_dim())});
  forward_to(run, y, x, saved);
  return y;
}

void Activation::forward_to(Run& run, const Forms& y, Tensor x, Saved& saved) const {
  activate(run.ops, run.stream, y, x, form_);
  take_over(run, x, y, saved);
}

Tensor Activation::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor dx = form_.gated() ? run.flow->take(run.dtype, saved[x_].shape) : dy;
  backward_input_to(run, dx, dy, saved);
  return dx;
}

void Activation::backward_input_to(Run& run, const Forms& dx, Tensor dy, Saved& saved) const {
  activate_backward(run.ops, run.stream, dx, dy, saved[x_], form_);
  show_gradient(run, dx.rows);
}

}  // namespace trifold
