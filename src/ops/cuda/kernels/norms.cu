// Layer norm and root-mean-square norm: the threads of a row hold it in registers between its sums and its
// results, so it is read once. What is beyond kHeld packs of each thread (rows of more than 16384 16-bit
// numbers) is read again.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kHeld = 4;

// Packs of a row, those of this thread: body(pack number, first column, numbers of it).
template <class T, class Body>
__device__ inline void each_pack(int columns, Body body) {
  constexpr int kPer = kPerPack<T>;
  const int step = static_cast<int>(blockDim.x) * kPer;
  const int first = static_cast<int>(threadIdx.x) * kPer;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int column = first + k * step;
    if (column < columns) body(k, column, columns - column < kPer ? columns - column : kPer);
  }
  for (int column = first + kHeld * step; column < columns; column += step)
    body(kHeld, column, columns - column < kPer ? columns - column : kPer);
}

// The packs of one array that a thread holds.
template <class T>
struct HeldRow {
  const T* row;
  bool aligned;
  FullPack<T> packs[kHeld];

  __device__ inline HeldRow(const T* row_, bool aligned_) : row(row_), aligned(aligned_) {}

  // Pack k, which begins at `column`: read the first time, and always where it is not held.
  __device__ inline FullPack<T> read(int k, int column, int count) {
    FullPack<T> pack;
    pack.load(row + column, count, aligned);
    if (k < kHeld) packs[k] = pack;
    return pack;
  }
  __device__ inline FullPack<T> again(int k, int column, int count) const {
    if (k < kHeld) return packs[k];
    FullPack<T> pack;
    pack.load(row + column, count, aligned);
    return pack;
  }
};

template <class T, bool Centered>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    norm_kernel(T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain, const T* bias,
                int64_t rows, int columns, Accumulate<T> eps, bool aligned) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int mine = row < rows ? columns : 0;
  HeldRow<T> in{x + row * columns, aligned};
  Wide sum[1] = {0};
  each_pack<T>(mine, [&](int k, int column, int count) {
    const FullPack<T> pack = in.read(k, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < count) sum[0] += Centered ? value(pack.at[i]) : value(pack.at[i]) * value(pack.at[i]);
  });
  combine_row(sum, Plus{});
  Wide center = 0;
  if constexpr (Centered) {
    center = sum[0] / static_cast<Wide>(columns);
    sum[0] = 0;
    each_pack<T>(mine, [&](int k, int column, int count) {
      const FullPack<T> pack = in.again(k, column, count);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const Wide d = value(pack.at[i]) - center;
        if (i < count) sum[0] += d * d;
      }
    });
    combine_row(sum, Plus{});
  }
  const Wide inverse = 1 / cpu::root_of(sum[0] / static_cast<Wide>(columns) + eps);
  each_pack<T>(mine, [&](int k, int column, int count) {
    FullPack<T> pack = in.again(k, column, count);
    FullPack<T> gains;
    FullPack<T> biases;
    gains.load(gain + column, count, aligned);
    if constexpr (Centered) biases.load(bias + column, count, aligned);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide scaled = (value(pack.at[i]) - center) * inverse * value(gains.at[i]);
      put(pack.at[i], Centered ? scaled + value(biases.at[i]) : scaled);
    }
    pack.store(y + row * columns + column, count, aligned);
  });
  if (row < rows && threadIdx.x == 0) {
    if constexpr (Centered) mean[row] = center;
    rstd[row] = inverse;
  }
}

// With n = (x - mean) rstd and g = dy gain: dx = rstd (g - avg(g) - n avg(g n)), without avg(g) where the
// norm does not center.
template <class T, bool Centered>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    norm_backward_kernel(T* dx, const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                         const T* gain, int64_t rows, int columns, bool aligned) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int mine = row < rows ? columns : 0;
  HeldRow<T> in{x + row * columns, aligned};
  HeldRow<T> grad{dy + row * columns, aligned};
  Wide center = 0;
  Wide inverse = 0;
  if (row < rows) {
    if constexpr (Centered) center = mean[row];
    inverse = rstd[row];
  }
  Wide sums[2] = {0, 0};
  each_pack<T>(mine, [&](int k, int column, int count) {
    const FullPack<T> xs = in.read(k, column, count);
    const FullPack<T> dys = grad.read(k, column, count);
    FullPack<T> gains;
    gains.load(gain + column, count, aligned);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide g = value(dys.at[i]) * value(gains.at[i]);
      if constexpr (Centered) sums[0] += g;
      sums[1] += g * ((value(xs.at[i]) - center) * inverse);
    }
  });
  combine_row(sums, Plus{});
  const Wide avg = sums[0] / static_cast<Wide>(columns);
  const Wide along = sums[1] / static_cast<Wide>(columns);
  each_pack<T>(mine, [&](int k, int column, int count) {
    const FullPack<T> xs = in.again(k, column, count);
    FullPack<T> dys = grad.again(k, column, count);
    FullPack<T> gains;
    gains.load(gain + column, count, aligned);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide normal = (value(xs.at[i]) - center) * inverse;
      put(dys.at[i], inverse * (value(dys.at[i]) * value(gains.at[i]) - avg - normal * along));
    }
    dys.store(dx + row * columns + column, count, aligned);
  });
}

}  // namespace

template <class T>
void norm(CudaStream stream, T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain,
          const T* bias, int64_t rows, int64_t columns, double eps) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kHeld);
  const bool aligned = packs<T>(columns, y, x, gain, bias);
  const auto kernel = bias != nullptr ? norm_kernel<T, true> : norm_kernel<T, false>;
  TRIFOLD_LAUNCH(kernel, blocks.grid, blocks.block, 0, stream, y, mean, rstd, x, gain, bias, rows,
                 static_cast<int>(columns), static_cast<Accumulate<T>>(eps), aligned);
}

template <class T>
void norm_backward(CudaStream stream, T* dx, const T* dy, const T* x, const Accumulate<T>* mean,
                   const Accumulate<T>* rstd, const T* gain, int64_t rows, int64_t columns) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kHeld);
  const bool aligned = packs<T>(columns, dx, dy, x, gain);
  const auto kernel = mean != nullptr ? norm_backward_kernel<T, true> : norm_backward_kernel<T, false>;
  TRIFOLD_LAUNCH(kernel, blocks.grid, blocks.block, 0, stream, dx, dy, x, mean, rstd, gain, rows,
                 static_cast<int>(columns), aligned);
}

#define INSTANTIATE(T)                                                                                \
  template void norm<T>(CudaStream, T*, Accumulate<T>*, Accumulate<T>*, const T*, const T*, const T*, \
                        int64_t, int64_t, double);                                                    \
  template void norm_backward<T>(CudaStream, T*, const T*, const T*, const Accumulate<T>*,            \
                                 const Accumulate<T>*, const T*, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
