// Matrix products through cuBLASLt (ops/cuda/lt_product.h): the table's `gemm`, and its products fused with
// other operations.
//
// Fused products use cuBLASLt's epilogues if it has an algorithm for the shape, and are composed otherwise
// (ops/composed.h). GELU's epilogues are used for 16-bit types only, because their tanh is an approximation.
// The gradient of a bias comes with that of the weights, not with that of the following GELU: in schedules
// that split the backward pass it is due then.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// How products of f32 factors are computed: in f32, or on tensor cores with factors rounded to TF32, which
// has f32's exponent and 10 bits of mantissa, and sums in f32. Does not affect products of other types.
enum class F32Products { Exact, Tf32 };

// Sets the raw entries for products.
void add_products(OpTable& ops, F32Products f32);

}  // namespace trifold::cuda
