#include "nn/recompute.h"

namespace trifold {

// Releases all tensors that the layer keeps; its slots are invalid until the forward is repeated.
Tensor Recompute::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Arena::Mark mark = run.scratch.mark();
  Run scratch_run = run.keeping_in(run.scratch);
  const Tensor output = layer_->forward(scratch_run, x, saved);
  const Tensor y = run.output().take(output.dtype, output.shape);
  run.ops.copy(run.stream, y, output);
  run.scratch.release(mark);
  return y;
}

void Recompute::repeat(Run& run, Saved& saved, Arena& arena) const {
  Run repeated = run.keeping_in(arena);
  repeated.loss_terms = {};
  repeated.counters = {};
  repeated.repeats = true;
  layer_->forward(repeated, saved[x_], saved);
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
