// The products of linear layers in FP8 (--fp8), on devices that support it (compute capability 8.9, Hopper
// and newer).
//
// The factors of a product are rounded to 8 bits when it is computed: activations and weights to E4M3,
// gradients to E5M2 (ops/kernels/fp8.h), each tensor with the scale that maps its largest magnitude to the
// format's (current scaling: no state from step to step). Tensors are still stored in bf16 or, for
// gradients of parameters, f32; sums are f32. Attention, norms, the embedding and the output heads do not use FP8.
//
// Rounded factors are stored after cuBLASLt's workspace, in memory that all products of a stream use in turn: two
// tensors of one byte per element.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

class CudaDevice;

// The CUDA table with the products of linear layers in FP8. Throws BadInput if the device does not support
// them.
OpTable make_fp8_table(CudaDevice* device);

}  // namespace trifold::cuda
