// Global gradient norm: every element of the model once, whatever the mesh. Squares are summed per parameter
// in f64 and the parameters' sums are added in the order of their names, so the norm does not depend on how
// blocks are placed.
#pragma once

#include <vector>

#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// Adds the sum of squares of every gradient this rank counts to its place in `sums`, f64, one place for each
// of params.by_name(). Gradients must be reduced already.
void add_grad_squares(const ParamList& params, const GradSink& grads, const Mesh& mesh, const OpTable& ops,
                      Tensor sums, Stream& stream);

// Norms from such sums, [norms, parameters]. Collective over the tensor and pipeline axes.
std::vector<double> grad_norms(Tensor sums, const Mesh& mesh, Stream& stream);

// Factor that brings a gradient of norm `norm` down to `limit`; 1 when it is below or when limit is 0
// (Megatron-LM's rule: limit / (norm + 1e-6)).
double clip_factor(double norm, double limit);

}  // namespace trifold
