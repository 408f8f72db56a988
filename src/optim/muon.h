// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): the direction of a matrix W is
// the momentum of its gradient G, made orthogonal. With Moonshot's scale and decoupled decay (Liu et al., "Muon is
// scalable for LLM training", arXiv 2502.16982) the rate and decay of AdamW serve:
//
//   M = momentum M + (1 - momentum) G
//   D = momentum M + (1 - momentum) G     (Nesterov; without it, D = M)
//   W = W - lr (scale orthogonalise(D) + decay W)
//
//   scale    extra factor times sqrt(max(r, c)) (spectral), sqrt(r / c) (unit_rms_norm) or sqrt(max(1, r / c))
//            (shape_scaling), for r rows and c columns
//
// orthogonalise approximates U V^T, where D = U S V^T is the singular value decomposition, by iterations of Newton and
// Schulz with a polynomial of degree five, whose coefficients bring all singular values near 1, not to 1:
//
//   X = D / max(|D|, 1e-7)                         |D| the Frobenius norm; transposed if it has more rows than columns
//   X = a X + (b A + c A A) X,  A = X X^T          in every iteration
//
// Everything is computed in the type of the masters, f32 or f64, in an order that depends on the matrix's shape alone.
// Parameters that are no matrices (zero/matrix_plan.h) are updated by another rule.
#pragma once

#include <memory>
#include <span>

#include "optim/update_rule.h"

namespace trifold {

// Elements of the workspace of orthogonalise, which includes the matrix itself.
int64_t newton_schulz_elements(int64_t rows, int64_t columns);
// Floating-point operations of orthogonalise.
double newton_schulz_flops(int64_t rows, int64_t columns, int64_t steps);

// Makes a matrix orthogonal. `work`, of newton_schulz_elements in f32 or f64, begins with X before the first iteration
// and before its division by the norm: [short side, long side]. `partials`, f64 [chunks of the matrix], is memory that
// the host and the device access; the call waits for the stream once. Returns X [short side, long side] after `steps`
// iterations, multiplied by `scale`: a view of `work`.
Tensor orthogonalise(Tensor work, int64_t short_side, int64_t long_side, int64_t steps, double scale,
                     Tensor partials, const OpTable& ops, Stream& stream);

// Muon for matrices, and `rest` for the other parameters.
std::unique_ptr<UpdateRule> make_muon(const OptimizerConfig& config, std::unique_ptr<UpdateRule> rest);

}  // namespace trifold
