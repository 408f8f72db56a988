// The products of linear layers in 8 bits (--fp8), on devices that have instructions for them (compute
// capability 8.9, Hopper and newer).
//
// Factors of a product are rounded to 8 bits as it is computed: activations and weights to E4M3, gradients to
// E5M2 (ops/kernels/fp8.h), each tensor with the scale that brings its largest number to the format's
// (current scaling, nothing is remembered from step to step). What is stored stays bf16 or, of gradients of
// parameters, f32; sums are f32. Attention, norms, the embedding and the output heads are as without.
//
// Rounded factors live beside cuBLASLt's workspace, once for all products of a stream: two tensors of a byte
// for each number.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

class CudaDevice;

// The CUDA table with the products of linear layers in 8 bits. Throws BadInput where the device has none.
OpTable make_fp8_table(CudaDevice* device);

}  // namespace trifold::cuda
