// Products of the rows of experts by warpgroups (sm_90a), whose operands and gradients pass through shared memory in
// boxes (tensor_copies.cuh). The launches return false, and enqueue nothing, where the driver makes no tensor maps.
// Alignments are as for grouped_product (kernels.h); `rows`, of all experts, is at least 1.
#pragma once

#include "ops/cuda/kernels/grouped_tiles.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

// The shared memory of a block that the launches ask for.
constexpr int kWarpgroupStages = 4;
constexpr int kStripBytes = 64 * kLineBytes;  // 64 rows of 32 gradients
constexpr int kStripBuffers = 2;              // each warpgroup has so many
constexpr int kWarpgroupBytes = kWarpgroupStages * kStageBytes + kWarpsDown * kStripBuffers * kStripBytes;

// The results of `operands` are the rows of the experts; w is [experts, columns, inner] if RightAlong, else [experts,
// inner, columns].
template <class T, bool RightAlong>
bool warpgroup_product(CudaStream stream, const Operands<T, T>& operands, int64_t rows, int64_t most_tiles);
// The results are the experts' gradients.
template <class T>
bool warpgroup_product_weight(CudaStream stream, const Operands<T, float>& operands, int64_t rows,
                              int64_t most_tiles);

}  // namespace trifold::cuda
