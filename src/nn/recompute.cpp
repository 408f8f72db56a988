#include "nn/recompute.h"

namespace trifold {

// Everything the layer keeps is dropped at once; its slots point nowhere until `repeat` fills them again.
Tensor Recompute::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Arena::Mark mark = run.flow.mark();
  Run briefly = run.keeping_in(run.flow);
  const Tensor inside = layer_->forward(briefly, x, saved);
  const Tensor y = run.keep.take(inside.dtype, inside.shape);
  run.ops.copy(run.stream, y, inside);
  run.flow.release(mark);
  return y;
}

void Recompute::repeat(Run& run, Saved& saved) const {
  Run again = run.keeping_in(run.flow);
  layer_->forward(again, saved[x_], saved);
}

Tensor Recompute::backward_input(Run& run, Tensor dy, Saved& saved) const {
  repeat(run, saved);
  return layer_->backward_input(run, dy, saved);
}

Tensor Recompute::backward(Run& run, Tensor dy, Saved& saved) const {
  repeat(run, saved);
  return layer_->backward(run, dy, saved);
}

}  // namespace trifold
