// Results of tensor cores in 16-bit types, written from the registers of a warp.
#pragma once

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/warpgroup.cuh"

namespace trifold::cuda {

template <class T>
__device__ inline uint32_t rounded(float low, float high) {
  T pair[2];
  put(pair[0], low);
  put(pair[1], high);
  return static_cast<uint32_t>(pair[0].bits) | static_cast<uint32_t>(pair[1].bits) << 16;
}

// Transposes four registers of the four lanes of a quad: lane t receives register t of every lane, in the order of
// lanes.
__device__ inline void exchange_in_quad(uint32_t (&x)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = (threadIdx.x & static_cast<unsigned>(bit)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      uint32_t& low = x[i];
      uint32_t& high = x[i | bit];
      const uint32_t got = __shfl_xor_sync(kAllLanes, upper ? low : high, bit);
      low = upper ? got : low;
      high = upper ? high : got;
    }
  }
}

// A thread's part [i][j] of 16 x 8 results, as `multiply` distributes them, at column 8 j; i counts steps of 16 rows
// down if Down, else steps of 64 columns to the right.
using Sums = WarpgroupSums;

// y has rows of `columns` elements; rows below `end` are written.
template <bool Down, class T>
__device__ inline void store_rounded(T* y, const Sums& sums, int row, int end, int column, int columns) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int four = 0; four < 2; ++four) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float(&pair)[4] = sums[i][four * 4 + j];
          words[j] = rounded<T>(pair[half * 2], pair[half * 2 + 1]);
        }
        exchange_in_quad(words);  // a lane now has eight consecutive elements
        const int r = row + (Down ? i * 16 : 0) + half * 8 + lane / 4;
        const int c = column + (Down ? 0 : i * 64) + (four * 4 + lane % 4) * 8;
        if (r < end && c < columns)
          *reinterpret_cast<uint4*>(y + static_cast<int64_t>(r) * columns + c) = {words[0], words[1],
                                                                                  words[2], words[3]};
      }
}

}  // namespace trifold::cuda
