// Matrix products through cuBLASLt: the table's `gemm` and `linear`.
//
// cuBLASLt counts matrices in columns, the project in rows, so it is asked for the transpose of the product,
// b^T a^T: what lies in memory is the same. Which algorithm computes a product is asked once for each
// (types, shape, transposes, alignment, epilogue, kind of device) and kept, so the same call always takes the
// same one and gives the same bits. 16-bit factors are summed in f32; f32 is computed in f32, not in TF32.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

void gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
          double beta);

// Bias, and where asked the maximum with zero, are added as the product is written.
void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu);

}  // namespace trifold::cuda
