// Matrix products through cuBLASLt (ops/cuda/lt_product.h): the table's `gemm`, and its products with what
// stands beside them.
//
// The latter take cuBLASLt's epilogues where it has an algorithm for the shape, and are the product and the
// plain kernels one after another elsewhere. GELU's are for 16-bit types alone: their tanh is an
// approximation. The gradient of a bias comes with that of the weights, not with that of the GELU behind it:
// in schedules that split the backward pass it is due then.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

void gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
          double beta);
void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias);
void affine_add(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias);
void affine_gelu(Stream& stream, Tensor y, Tensor z, Tensor x, Tensor w, Tensor bias);
void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta);
void affine_backward_gelu(Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z);
void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, Tensor dy, Tensor x, bool accumulate);

// Bias, and where asked the maximum with zero, are added as the product is written.
void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu);

}  // namespace trifold::cuda
