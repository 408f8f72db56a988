// The products of --fp8 (ops/cuda/fp8.h) on the processor: operands rounded to 8 bits, sums in f32.
#pragma once

#include "ops/ops.h"

namespace trifold::test {

// The processor's table with these entries.
const OpTable& narrow_ops();

}  // namespace trifold::test
