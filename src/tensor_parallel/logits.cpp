#include "tensor_parallel/logits.h"

namespace trifold {

void compute_logits(Run& run, const LogitForm& form, Tensor logits, Tensor x, Tensor weight) {
  const bool caps = form.soft_cap > 0;
  run.ops.gemm(run.stream, logits, x, false, weight, true, caps ? form.scale / form.soft_cap : form.scale,
               0.0);
  if (!caps) return;
  run.ops.tanh(run.stream, logits, logits);
  run.ops.scale(run.stream, logits, form.soft_cap);
}

void undo_soft_cap(Run& run, const LogitForm& form, Tensor gradient, Tensor logits) {
  if (form.soft_cap == 0) return;
  run.ops.scale(run.stream, logits, 1 / form.soft_cap);
  run.ops.tanh_backward(run.stream, gradient, gradient, logits);
}

}  // namespace trifold
