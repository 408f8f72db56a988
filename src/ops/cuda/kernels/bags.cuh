// Sums of listed rows, for lookups in embedding tables and updates of touched rows. A row is processed by as many lanes
// as it has packs, at most a warp; wider rows are processed in strips.
#pragma once

#include "ops/cuda/kernels/group.cuh"

namespace trifold::cuda {

constexpr int kAhead = 4;  // rows that a lane loads before it adds the first

// The terms of a sum: row index[i] of `from`, times weights[i], for lookup i.
template <class W>
struct LookedUp {
  const W* from;
  int64_t stride;
  const int32_t* index;
  const float* weights;  // null: 1
  __device__ inline int32_t row(int64_t i) const { return index[i]; }
  __device__ inline W weight(int64_t i) const {
    return weights != nullptr ? static_cast<W>(weights[i]) : W(1);
  }
  __device__ inline const W* at(int32_t row) const { return from + row * stride; }
};

// sum = the sum of lookups first, first + step, ... below last, for one pack of columns, of which `count` exist. The
// indices of `Ahead` rows are loaded together, then the rows, then they are added. Whole: rows consist of whole,
// aligned packs.
template <bool Whole, int Ahead, class W, class Rows>
__device__ inline void sum_rows(W (&sum)[kPerPack<W>], const Rows& rows, int64_t first, int64_t last,
                                int64_t step, int64_t column, int count) {
#pragma unroll
  for (int j = 0; j < kPerPack<W>; ++j) sum[j] = 0;
  if (count == 0) return;
  for (int64_t i = first; i < last; i += Ahead * step) {
    int32_t row[Ahead];
    W weight[Ahead];
    FullPack<W> packs[Ahead];
#pragma unroll
    for (int k = 0; k < Ahead; ++k) {
      if (i + k * step >= last) continue;
      row[k] = rows.row(i + k * step);
      weight[k] = rows.weight(i + k * step);
    }
#pragma unroll
    for (int k = 0; k < Ahead; ++k)
      if (i + k * step < last) packs[k].template load<Whole>(rows.at(row[k]) + column, count);
#pragma unroll
    for (int k = 0; k < Ahead; ++k) {
      if (i + k * step >= last) continue;
#pragma unroll
      for (int j = 0; j < kPerPack<W>; ++j)
        if (Whole || j < count) sum[j] += weight[k] * packs[k].at[j];
    }
  }
}

// The number of lanes for a row of `width`, a power of two.
template <class W>
__host__ __device__ inline int lanes_of(int64_t width) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kPerPack<W> < width) lanes *= 2;
  return lanes;
}

}  // namespace trifold::cuda
