// Reductions (sums, maxima) over the threads that process one row. A row's threads are the x extent of the block, a
// multiple of 32; the y extent is the number of rows that a block processes at a time. All threads of the block must
// call these functions, including threads without a row. The order of a reduction depends only on the extents.
#pragma once

#include "ops/cuda/kernels/pack.cuh"

namespace trifold::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Most {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Reduces over each group of `lanes` adjacent lanes (a power of two, at most 32); every lane gets the result.
template <class T, class Combine>
__device__ inline T combine_lanes(T x, Combine combine, int lanes = kWarp) {
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    x = combine(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// Reduces each of Count values over a row's threads; every thread gets the results.
template <int Count, class T, class Combine>
__device__ inline void combine_row(T (&x)[Count], Combine combine) {
#pragma unroll
  for (int k = 0; k < Count; ++k) x[k] = combine_lanes(x[k], combine);
  if (blockDim.x == kWarp) return;
  __shared__ T of_warp[Count][32];
  const int warp = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int first = static_cast<int>(threadIdx.y) * warps;
  if (threadIdx.x % kWarp == 0)
    for (int k = 0; k < Count; ++k) of_warp[k][warp] = x[k];
  __syncthreads();
  for (int k = 0; k < Count; ++k) {
    x[k] = of_warp[k][first];
    for (int w = 1; w < warps; ++w) x[k] = combine(x[k], of_warp[k][first + w]);
  }
  __syncthreads();
}

// The maximum number of threads per row, which leaves 128 registers for each.
constexpr int kMostRowThreads = 512;

// The grid and blocks for `rows` rows: enough threads per row that each has at most `held` packs, if possible.
struct RowBlocks {
  dim3 grid, block;
};
template <class T>
RowBlocks row_blocks(int64_t rows, int64_t columns, int held) {
  constexpr int kBlock = 256;
  const int64_t wanted = parts(parts(columns, kPerPack<T>), held);
  unsigned threads = kWarp;
  while (threads < wanted && threads < kMostRowThreads) threads *= 2;
  const unsigned together = threads < kBlock ? kBlock / threads : 1;
  return {dim3(static_cast<unsigned>(parts(rows, together))), dim3(threads, together)};
}

}  // namespace trifold::cuda
