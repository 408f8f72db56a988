// Matrix products through cuBLASLt (ops/cuda/lt_product.h): the table's `gemm`, and its products fused with
// other operations.
//
// Fused products use cuBLASLt's epilogues if it has an algorithm for the shape, and are composed otherwise
// (ops/composed.h). GELU's epilogues are used for 16-bit types only, because their tanh is an approximation.
// The gradient of a bias is computed with the gradient of the weights rather than fused with the GELU that follows,
// because schedules that split the backward pass compute it in the weights' part.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// The precision of products of f32 factors: f32, or TF32 on tensor cores: factors rounded to f32's exponent and 10
// bits of mantissa, sums in f32. Does not affect products of other types.
enum class F32Products { Exact, Tf32 };

// Sets the raw entries for products.
void add_products(OpTable& ops, F32Products f32);

}  // namespace trifold::cuda
