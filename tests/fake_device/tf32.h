// The products of --tf32 (ops/cuda/gemm.h) on the processor: f32 operands rounded to 10 bits of mantissa, sums in f32.
#pragma once

#include "ops/ops.h"

namespace trifold::test {

// The processor's table with these products.
const OpTable& tf32_ops();

}  // namespace trifold::test
