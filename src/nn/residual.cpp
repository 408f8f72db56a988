#include "nn/residual.h"

namespace trifold {

void ResidualAdd::reserve(Run& run, int64_t rows, int64_t columns, Saved& saved) const {
  if (!shape_.norm) return;
  saved[x_] = run.keep->take(run.dtype, {rows, columns});
  shape_.norm->take_statistics(run, rows, saved);
}

Tensor ResidualAdd::forward(Run& run, Tensor residual, Tensor x, Saved& saved) const {
  const Tensor y = run.keep->take(run.dtype, x.shape);
  forward_to(run, y, residual, x, saved);
  return y;
}

// x is the caller's temporary, so its memory takes each step's result.
void ResidualAdd::forward_to(Run& run, Tensor y, Tensor residual, Tensor x, Saved& saved) const {
  if (shape_.norm) {
    run.ops.copy(run.stream, saved[x_], x);
    shape_.norm->apply(run, x, saved[x_], saved);
  }
  if (shape_.multiplier != 1) run.ops.scale(run.stream, x, shape_.multiplier);
  if (drops(run))
    for_each_dropout(run, dropout_, key_, row_part_, x,
                     [&](int64_t begin, int64_t end, const Dropout& dropout) {
                       run.ops.dropout_add(run.stream, y.rows(begin, end), residual.rows(begin, end),
                                           x.rows(begin, end), dropout);
                     });
  else
    run.ops.add(run.stream, y, residual, x);
  show_sum(run, y);
}

// The gradient of norm(x).
Tensor ResidualAdd::scaled_gradient(Run& run, Tensor dy) const {
  if (!drops(run) && shape_.multiplier == 1) return dy;
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  if (drops(run))
    drop_activation(run, dx, dy, dropout_, key_, row_part_);
  else
    run.ops.copy(run.stream, dx, dy);
  if (shape_.multiplier != 1) run.ops.scale(run.stream, dx, shape_.multiplier);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor ResidualAdd::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor dx = scaled_gradient(run, dy);
  return shape_.norm ? shape_.norm->backward_input(run, dx, saved) : dx;
}

Tensor ResidualAdd::backward(Run& run, Tensor dy, Saved& saved) const {
  const Tensor dx = scaled_gradient(run, dy);
  return shape_.norm ? shape_.norm->backward(run, dx, saved) : dx;
}

void ResidualAdd::backward_weight(Run& run, Saved& saved) const {
  if (shape_.norm) shape_.norm->backward_weight(run, saved);
}

}  // namespace trifold
