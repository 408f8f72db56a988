// Rounding to 8 bits in kernels (ops/kernels/fp8.h), and results in narrow form (ops/narrow.h).
#pragma once

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/kernels/fp8.h"
#if defined(__CUDACC__)
#include <cuda_fp8.h>
#endif

namespace trifold::cuda {

// The larger number, or NaN if either is: no scale may hide a NaN.
struct Larger {
  __device__ float operator()(float a, float b) const { return b <= a ? b != b ? b : a : a != a ? a : b; }
};

__device__ inline float magnitude(float x) { return x < 0 ? -x : x; }

template <cpu::Fp8 Format>
__device__ inline uint8_t narrowed(float x) {
#if defined(__CUDA_ARCH__)
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, Format == cpu::Fp8::E4M3 ? __NV_E4M3 : __NV_E5M2);
#else
  return cpu::round_fp8<Format>(x);
#endif
}

constexpr int kBlockLanes = static_cast<int>(kNarrowBlock) / kPerPack<Bfloat16>;  // lanes with one scale

// The scale of 128 elements of a row, of which each of 16 lanes has a pack; without elements, count is 0. All lanes of
// the warp must call it.
__device__ inline cpu::BlockScale scale_of_lanes(const FullPack<Bfloat16>& pack, int count) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kPerPack<Bfloat16>; ++i)
    if (i < count) largest = Larger{}(largest, magnitude(value(pack.at[i])));
  return cpu::block_scale(combine_lanes(largest, Larger{}, kBlockLanes));
}

// Writes the elements of a pack at (row, column) of y; otherwise as scale_of_lanes.
__device__ inline void store_narrow(const NarrowMatrix& y, int64_t row, int64_t column, int count,
                                    const FullPack<Bfloat16>& pack) {
  const cpu::BlockScale scale = scale_of_lanes(pack, count);
  if (count == 0) return;
  constexpr int kPer = kPerPack<Bfloat16>;
  Numbers<uint8_t, kPer> codes;
#pragma unroll
  for (int i = 0; i < kPer; ++i) codes.at[i] = narrowed<cpu::Fp8::E4M3>(value(pack.at[i]) * scale.to);
  codes.store(y.codes + row * y.columns + column);
  if (column % kNarrowBlock == 0) y.scales[column / kNarrowBlock * y.rows + row] = scale.from;
}

// A result of narrow_map_kernel: a map writes it as an Out array, and the kernel narrows it.
struct Narrowed : Out<Bfloat16> {};

// As map_kernel (map.cuh), for bf16. The first Results arrays are Narrowed, columns [0, columns) and, of a second one,
// [columns, 2 columns) of y. 16 lanes have the packs of 128 columns.
template <int Results, class F, class... Arrays>
__global__ void __launch_bounds__(kMapThreads, 1)
    narrow_map_kernel(F f, NarrowMatrix y, int64_t columns, bool aligned, Arrays... arrays) {
  constexpr int kPer = kPerPack<Bfloat16>;
  const auto row_packs = static_cast<uint32_t>(scale_blocks_of(columns) * kBlockLanes);
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  const int64_t row = pack <= 0xffffffff ? static_cast<uint32_t>(pack) / row_packs : pack / row_packs;
  const int64_t column = (pack - row * row_packs) * kPer;
  const int count = row < y.rows && column < columns ? kPer : 0;
  Slots<kPer, Arrays...> slots(arrays...);
  slots.load(row, column, count, aligned);
#pragma unroll
  for (int i = 0; i < kPer; ++i)
    if (i < count) slots.apply(f, i);
  store_narrow(y, row, column, count, slots.numbers);
  if constexpr (Results == 2) store_narrow(y, row, columns + column, count, slots.rest.numbers);
}

template <int Results, class F, class... Arrays>
void narrow_map(CudaStream stream, const NarrowMatrix& y, const F& f, Arrays... arrays) {
  const int64_t columns = y.columns / Results;
  if (y.rows == 0 || columns == 0) return;
  const bool aligned = (alignment_bits(arrays, kPerPack<Bfloat16>) | ...) == 0;
  const int64_t packs = y.rows * scale_blocks_of(columns) * kBlockLanes;
  const auto blocks = dim3(static_cast<unsigned>(parts(packs, kMapThreads)));
  if constexpr (Results == 1)
    TRIFOLD_LAUNCH((narrow_map_kernel<1, F, Narrowed, Arrays...>), blocks, dim3(kMapThreads), 0, stream, f, y,
                   columns, aligned, Narrowed{}, arrays...);
  else
    TRIFOLD_LAUNCH((narrow_map_kernel<2, F, Narrowed, Narrowed, Arrays...>), blocks, dim3(kMapThreads), 0,
                   stream, f, y, columns, aligned, Narrowed{}, Narrowed{}, arrays...);
}

}  // namespace trifold::cuda
