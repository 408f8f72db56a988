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

// ---- turned forms: a block of threads has a tile of 128 x 128 elements ----

constexpr int kTileThreads = 256;
constexpr int kTileSide = static_cast<int>(kNarrowBlock);
constexpr int kTilePer = kPerPack<Bfloat16>;
constexpr int kTilePacks = kTileSide * kTileSide / kTilePer / kTileThreads;  // packs of a thread
constexpr int kTurnedCodes = 16;  // codes that a thread writes at a time

// The row and the first column of this thread's pack `number` in its tile. 16 lanes have a row, and a thread has the same
// columns in all of its packs.
__device__ inline int tile_row(int number) {
  return (static_cast<int>(threadIdx.x) + number * kTileThreads) / kBlockLanes;
}
__device__ inline int tile_column() { return static_cast<int>(threadIdx.x) % kBlockLanes * kTilePer; }

// Shared memory of a block: the elements as narrow rows represent them, and what threads combine over rows.
struct FormsTile {
  Bfloat16 numbers[kTileSide][kTileSide + 2];
  float most[2][kTileSide];
  float sums[kTileThreads / kWarp][kTileSide];
};

// Puts pack `number` of this thread into the tile, writes its narrow rows if they are asked for, and adds its elements to
// `sums`. `row` and `column` are of the whole matrix. All lanes of a warp must call it; without elements, count is 0.
__device__ inline void put_pack(FormsTile& tile, float (&sums)[kTilePer], const NarrowForms& y, int number,
                                int64_t row, int64_t column, int count, const FullPack<Bfloat16>& pack) {
  const cpu::BlockScale scale = scale_of_lanes(pack, count);
  Numbers<uint8_t, kTilePer> codes;
#pragma unroll
  for (int i = 0; i < kTilePer; ++i) {
    const float x = i < count ? value(pack.at[i]) : 0.0F;
    codes.at[i] = narrowed<cpu::Fp8::E4M3>(x * scale.to);
    put(tile.numbers[tile_row(number)][tile_column() + i],
        i < count ? cpu::value_of_fp8<cpu::Fp8::E4M3>(codes.at[i]) * scale.from : 0.0F);
    sums[i] += x;
  }
  if (count == 0 || y.codes == nullptr) return;
  codes.store(y.codes + row * y.columns + column);
  if (column % kNarrowBlock == 0) y.scales[column / kNarrowBlock * y.rows + row] = scale.from;
}

// Writes the turned form and the sums of a tile whose packs all threads have put: half of the threads have the upper 64
// rows of a column each, the others the lower ones. All threads must call it; afterwards the tile may be used again.
__device__ inline void finish_tile(FormsTile& tile, const float (&sums)[kTilePer], const NarrowForms& y,
                                   int64_t row0, int64_t column0) {
  constexpr int kHalf = kTileSide / 2;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int i = 0; i < kTilePer; ++i) {  // a warp has two rows
    const float both = sums[i] + __shfl_xor_sync(kAllLanes, sums[i], kBlockLanes);
    if (static_cast<int>(threadIdx.x) % kWarp < kBlockLanes) tile.sums[warp][tile_column() + i] = both;
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % kTileSide;
  const int half = static_cast<int>(threadIdx.x) / kTileSide;
  float largest = 0;
  for (int r = half * kHalf; r < (half + 1) * kHalf; ++r)
    largest = Larger{}(largest, magnitude(value(tile.numbers[r][column])));
  tile.most[half][column] = largest;
  __syncthreads();
  if (column0 + column < y.columns) {
    const int64_t place = row0 / kTileSide * y.columns + column0 + column;
    if (half == 1 && y.sums != nullptr) {
      float sum = 0;
      for (int w = 0; w < kTileThreads / kWarp; ++w) sum += tile.sums[w][column];
      y.sums[place] = sum;
    }
    if (y.turned_codes != nullptr) {
      const cpu::BlockScale scale = cpu::block_scale(Larger{}(tile.most[0][column], tile.most[1][column]));
      if (half == 0) y.turned_scales[place] = scale.from;
      for (int r = half * kHalf; r < (half + 1) * kHalf && row0 + r < y.rows; r += kTurnedCodes) {
        Numbers<uint8_t, kTurnedCodes> codes;
#pragma unroll
        for (int i = 0; i < kTurnedCodes; ++i)
          codes.at[i] = narrowed<cpu::Fp8::E4M3>(value(tile.numbers[r + i][column]) * scale.to);
        codes.store(y.turned_codes + (column0 + column) * y.rows + row0 + r);
      }
    }
  }
  __syncthreads();
}

// Blocks of a tile on a multiprocessor at once. The compiler needs more registers for GPUs before Hopper, which have no
// products with scales of blocks and never run these kernels.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kTileBlocks = 1;
#else
constexpr int kTileBlocks = 2;
#endif

// As narrow_map_kernel, for results with turned forms or sums. A second result is held in registers until the tile is free.
template <int Results, class F, class... Arrays>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    forms_map_kernel(F f, NarrowForms y, int64_t columns, bool aligned, Arrays... arrays) {
  __shared__ FormsTile tile;
  constexpr int kTogether =
      Results == 2 ? 1 : 2;  // loads of each array in flight; there are too few registers for more
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTileSide;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTileSide;
  const int64_t column = column0 + tile_column();
  const auto count_of = [&](int64_t row) { return row < y.rows && column < columns ? kTilePer : 0; };
  FullPack<Bfloat16> second[Results == 2 ? kTilePacks : 1];
  float sums[kTilePer] = {};
  const auto put = [&](int k, auto& slots) {
    const int64_t row = row0 + tile_row(k);
    const int count = count_of(row);
#pragma unroll
    for (int i = 0; i < kTilePer; ++i)
      if (i < count) slots.apply(f, i);
    put_pack(tile, sums, y, k, row, column, count, slots.numbers);
    if constexpr (Results == 2) second[k] = slots.rest.numbers;
  };
  const auto load = [&](int k, auto& slots) {
    const int64_t row = row0 + tile_row(k);
    slots.load(row, column, count_of(row), aligned);
  };
#pragma unroll
  for (int k = 0; k < kTilePacks; k += kTogether) {
    Slots<kTilePer, Arrays...> one(arrays...);
    load(k, one);
    if constexpr (kTogether == 2) {
      Slots<kTilePer, Arrays...> two(arrays...);
      load(k + 1, two);
      put(k, one);
      put(k + 1, two);
    } else {
      put(k, one);
    }
  }
  finish_tile(tile, sums, y, row0, column0);
  if constexpr (Results == 2) {
#pragma unroll
    for (int i = 0; i < kTilePer; ++i) sums[i] = 0;
#pragma unroll
    for (int k = 0; k < kTilePacks; ++k) {
      const int64_t row = row0 + tile_row(k);
      put_pack(tile, sums, y, k, row, columns + column, count_of(row), second[k]);
    }
    finish_tile(tile, sums, y, row0, columns + column0);
  }
}

inline dim3 tiles_of(int64_t rows, int64_t columns) {
  return dim3(static_cast<unsigned>(parts(columns, kTileSide)),
              static_cast<unsigned>(parts(rows, kTileSide)));
}

// Results 2: y has a multiple of 256 columns.
template <int Results, class F, class... Arrays>
void narrow_map(CudaStream stream, const NarrowForms& y, const F& f, Arrays... arrays) {
  const int64_t columns = y.columns / Results;
  if (y.rows == 0 || columns == 0) return;
  const bool aligned = (alignment_bits(arrays, kPerPack<Bfloat16>) | ...) == 0;
  const auto launch = [&](auto... results) {
    if (!y.only_rows()) {
      TRIFOLD_LAUNCH((forms_map_kernel<Results, F, decltype(results)..., Arrays...>),
                     tiles_of(y.rows, columns), dim3(kTileThreads), 0, stream, f, y, columns, aligned,
                     results..., arrays...);
      return;
    }
    const NarrowMatrix rows{y.codes, y.scales, y.rows, y.columns};
    const int64_t packs = y.rows * scale_blocks_of(columns) * kBlockLanes;
    TRIFOLD_LAUNCH((narrow_map_kernel<Results, F, decltype(results)..., Arrays...>),
                   dim3(static_cast<unsigned>(parts(packs, kMapThreads))), dim3(kMapThreads), 0, stream, f,
                   rows, columns, aligned, results..., arrays...);
  };
  if constexpr (Results == 1)
    launch(Narrowed{});
  else
    launch(Narrowed{}, Narrowed{});
}

}  // namespace trifold::cuda
