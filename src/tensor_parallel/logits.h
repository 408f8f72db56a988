// The logits of an output layer with weight E [V, C], V cut over the tensor axis, for rows x [n, C].
#pragma once

#include "nn/layer.h"

namespace trifold {

// z = scale * x E^T; logits = z, or with a soft cap soft_cap * tanh(z / soft_cap) (Gemma 2, arXiv 2408.00118).
struct LogitForm {
  double scale = 1;
  double soft_cap = 0;  // 0: none
};

// Computes logits [n, V/tp] from x [n, C] and this rank's rows of E.
void compute_logits(Run& run, const LogitForm& form, Tensor logits, Tensor x, Tensor weight);

// With a soft cap, turns the gradient of the logits into that of z, in place. Overwrites `logits`. The gradients of x
// and E are then products of it with E and x, times form.scale.
void undo_soft_cap(Run& run, const LogitForm& form, Tensor gradient, Tensor logits);

}  // namespace trifold
