#include "nn/recompute.h"

namespace trifold {

// All tensors that the layer keeps are released at once; its slots are invalid until the forward is repeated.
Tensor Recompute::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Arena::Mark mark = run.scratch.mark();
  Run brief = run.keeping_in(run.scratch);
  const Tensor inside = layer_->forward(brief, x, saved);
  const Tensor y = run.output().take(inside.dtype, inside.shape);
  run.ops.copy(run.stream, y, inside);
  run.scratch.release(mark);
  return y;
}

void Recompute::repeat(Run& run, Saved& saved, Arena& arena) const {
  Run again = run.keeping_in(arena);
  again.loss_terms = {};
  again.counters = {};
  again.repeats = true;
  layer_->forward(again, saved[x_], saved);
}

Tensor Recompute::backward_input(Run& run, Tensor dy, Saved& saved) const {
  repeat(run, saved, *run.flow);
  return layer_->backward_input(run, dy, saved);
}

Tensor Recompute::backward(Run& run, Tensor dy, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  repeat(run, saved, run.scratch);
  const Tensor dx = layer_->backward(run, dy, saved);
  run.scratch.release(mark);
  return dx;
}

}  // namespace trifold
