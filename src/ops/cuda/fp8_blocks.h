// The products of linear layers in FP8 with scales of blocks (--fp8-recipe blockwise), on Hopper.
//
// Activations and their gradients have a scale for each 128 elements along the dim over which a product sums, weights one
// for each 128 x 128 elements; all factors are E4M3, and scales are powers of two (ops/narrow.h). A scale depends on its
// block alone, so a factor is rounded in the one pass that reads it, or by the operation that computes it, if that
// writes the form that the product reads (ops/forms.h). cuBLASLt multiplies from version 12.9 on
// (CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F and CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) and adds a bias and a residual
// as it writes the result; where no algorithm does, a pass adds them.
//
// Rounded factors are stored in the memory that ops/cuda/fp8.h describes.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

class CudaDevice;

// The CUDA table with these products. Throws BadInput if the device or the installed cuBLASLt does not have them.
OpTable make_fp8_blocks_table(CudaDevice* device);

}  // namespace trifold::cuda
