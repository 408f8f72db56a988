#include "tensor_parallel/head_norm.h"

#include "tensor_parallel/regions.h"

namespace trifold {

HeadNorm::HeadNorm(BlockBuilder& builder, const std::string& name, const NormedHeads& heads,
                   const NormForm& form)
    : name_(name), heads_(heads), form_(form) {
  const int64_t ranks = builder.mesh().size(Axis::Tp);
  check(!heads.as_one || form.kind == Normalization::RmsNorm, "{}: a norm over all heads is no RMSNorm",
        name);
  if (!heads.as_one || ranks == 1) {
    norm_.emplace(builder, name, heads.as_one ? heads.all * heads.head_dim : heads.head_dim, form, true);
    return;
  }
  copies_ = ranks * heads.local / heads.all;
  gain_ =
      builder.sharded(name + ".gain", {heads.all * heads.head_dim}, 0, initial_gain(form), false, heads.all);
  x_ = builder.slot();
  rstd_ = builder.slot();
  dy_ = builder.slot();
}

// The rows that the norm reads.
Tensor HeadNorm::by_row(Tensor all_heads) const {
  const int64_t width = (heads_.as_one ? heads_.local : 1) * heads_.head_dim;
  return all_heads.reshape({all_heads.elements() / width, width});
}

void HeadNorm::take_statistics(Run& run, int64_t rows, Saved& saved) const {
  if (norm_) return norm_->take_statistics(run, heads_.as_one ? rows : rows * heads_.local, saved);
  saved[rstd_] = run.keep->take(accumulate_type(run.dtype), {rows});
}

// Sums over the columns of all heads. Every rank that holds a copy of a head adds that head's columns.
void HeadNorm::add_over_axis(Run& run, Tensor sums) const {
  reduce_over_axis(run, sums, Reduce::Sum);
  run.ops.scale(run.stream, sums, 1.0 / static_cast<double>(copies_ * heads_.all * heads_.head_dim));
}

void HeadNorm::apply(Run& run, Tensor y, Tensor x, Saved& saved) const {
  if (norm_) return norm_->apply(run, by_row(y), by_row(x), saved);
  saved[x_] = x;
  const Tensor rstd = saved[rstd_];
  run.ops.rms_part_sums(run.stream, rstd, x, {}, run.weight(*gain_), 0);
  add_over_axis(run, rstd);
  run.ops.inverse_root(run.stream, rstd, rstd, form_.eps);
  run.ops.rms_part(run.stream, y, x, rstd, run.weight(*gain_), form_.gain_offset);
  run.show(name_, "output", y);
}

Tensor HeadNorm::backward_input(Run& run, Tensor dy, Saved& saved) const {
  if (norm_) return norm_->backward_input(run, by_row(dy), saved).reshape(dy.shape);
  saved[dy_] = dy;
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor along = run.scratch.take(saved[rstd_].dtype, saved[rstd_].shape);
  run.ops.rms_part_sums(run.stream, along, saved[x_], dy, run.weight(*gain_), form_.gain_offset);
  add_over_axis(run, along);
  run.ops.rms_part_backward(run.stream, dx, dy, saved[x_], saved[rstd_], along, run.weight(*gain_),
                            form_.gain_offset);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dx);
  return dx;
}

void HeadNorm::backward_weight(Run& run, Saved& saved) const {
  if (norm_) return norm_->backward_weight(run, saved);
  if (!run.trains(*gain_)) return;
  run.ops.rms_norm_backward_weight(run.stream, run.grad(*gain_), saved[dy_], saved[x_], saved[rstd_],
                                   run.adds_to(*gain_));
}

}  // namespace trifold
