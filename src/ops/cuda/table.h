// The OpTable of a CUDA device.
#pragma once

#include "ops/cuda/gemm.h"
#include "ops/ops.h"

namespace trifold::cuda {

// The raw entries, without checks (ops/contract.h) and without a device.
template <F32Products Precision>
const OpTable& raw_ops();

OpTable make_table(Device* device, F32Products f32 = F32Products::Exact);

}  // namespace trifold::cuda
