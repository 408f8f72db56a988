// Matrix products through cuBLASLt (ops/cuda/lt_product.h): the table's `gemm`, and its products with what
// stands beside them.
//
// The latter take cuBLASLt's epilogues where it has an algorithm for the shape, and are composed
// (ops/composed.h) elsewhere. GELU's are for 16-bit types alone: their tanh is an
// approximation. The gradient of a bias comes with that of the weights, not with that of the GELU behind it:
// in schedules that split the backward pass it is due then.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// How products of f32 factors are computed: in f32, or on tensor cores from factors rounded to TF32, which
// has f32's exponent and 10 bits of mantissa, with sums in f32. Products of other types are the same in both.
enum class F32Products { Exact, Tf32 };

// Sets the raw entries for products.
void add_products(OpTable& ops, F32Products f32);

}  // namespace trifold::cuda
