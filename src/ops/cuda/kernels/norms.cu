// Layer norm and root-mean-square norm: the threads of a row keep it in registers between its sums and its
// results, so it is read once. All its packs are loaded before the first is used, because an SM has few
// threads, which must keep the memory busy. Elements beyond kHeld packs per thread (in rows of more than
// 16384 16-bit numbers) are read again, pack by pack. Whole: rows consist of whole packs, see packs().
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/narrow.cuh"

namespace trifold::cuda {

namespace {

constexpr int kHeld = 4;

// Calls body(pack number, first column, count) for this thread's packs of a row.
template <class T, bool Whole, class Body>
__device__ inline void each_held(int columns, Body body) {
  constexpr int kPer = kPerPack<T>;
  const int step = static_cast<int>(blockDim.x) * kPer;
  const int first = static_cast<int>(threadIdx.x) * kPer;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int column = first + k * step;
    if (column < columns) body(k, column, Whole || columns - column >= kPer ? kPer : columns - column);
  }
}
template <class T, bool Whole, class Body>
__device__ inline void each_pack(int columns, Body body) {
  constexpr int kPer = kPerPack<T>;
  each_held<T, Whole>(columns, body);
  const int step = static_cast<int>(blockDim.x) * kPer;
  for (int column = static_cast<int>(threadIdx.x) * kPer + kHeld * step; column < columns; column += step)
    body(kHeld, column, Whole || columns - column >= kPer ? kPer : columns - column);
}

// Calls body(pack number, first column, count) for the same packs, also of threads without elements, for which count is
// 0: in the body, all threads of a row are together. `columns` is the length of all rows, `mine` that of this one or 0.
template <class T, bool Whole, class Body>
__device__ inline void each_pack_together(int columns, int mine, Body body) {
  constexpr int kPer = kPerPack<T>;
  const int step = static_cast<int>(blockDim.x) * kPer;
  const int first = static_cast<int>(threadIdx.x) * kPer;
  const auto count = [&](int column) {
    return column >= mine ? 0 : Whole || mine - column >= kPer ? kPer : mine - column;
  };
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (k * step < columns) body(k, first + k * step, count(first + k * step));
  for (int begin = kHeld * step; begin < columns; begin += step)
    body(kHeld, begin + first, count(begin + first));
}

// Where a norm's result goes: rows of T, or a narrow matrix.
template <class T>
struct WideResult {
  T* data;
  int64_t stride;

  template <bool Whole, class Body>
  __device__ inline void write(int64_t row, int /*columns*/, int mine, Body body) const {
    each_pack<T, Whole>(mine, [&](int k, int column, int count) {
      body(k, column, count).template store<Whole>(data + row * stride + column, count);
    });
  }
};
struct NarrowResult {
  NarrowMatrix y;

  template <bool Whole, class Body>
  __device__ inline void write(int64_t row, int columns, int mine, Body body) const {
    each_pack_together<Bfloat16, Whole>(columns, mine, [&](int k, int column, int count) {
      FullPack<Bfloat16> pack{};
      if (count > 0) pack = body(k, column, count);
      store_narrow(y, row, column, count, pack);
    });
  }
};

// A thread's packs of one array; without Keep, each is loaded when it is used.
template <class T, bool Whole, bool Keep = true>
struct RowPacks {
  const T* row;
  FullPack<T> packs[kHeld];

  __device__ inline RowPacks(const T* row_, int columns) : row(row_) {
    if constexpr (!Keep) return;
    each_held<T, Whole>(
        columns, [&](int k, int column, int count) { packs[k].template load<Whole>(row + column, count); });
  }
  // Pack k, which begins at `column`: loaded again if it is not kept.
  __device__ inline FullPack<T> pack(int k, int column, int count) const {
    if (Keep && k < kHeld) return packs[k];
    FullPack<T> beyond;
    beyond.template load<Whole>(row + column, count);
    return beyond;
  }
};

// Two blocks of the most threads: 64 registers, which ptxas achieves without spills if packs are whole.
template <class T, class Result, bool Centered, bool Whole>
__global__ void __launch_bounds__(kMostRowThreads, Whole ? 2 : 1)
    norm_kernel(Result y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain, const T* bias,
                int64_t rows, int columns, Accumulate<T> eps, Accumulate<T> offset) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int mine = row < rows ? columns : 0;
  const RowPacks<T, Whole> in(x + row * columns, mine);
  Wide sum[1] = {0};
  each_pack<T, Whole>(mine, [&](int k, int column, int count) {
    const FullPack<T> pack = in.pack(k, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < count) sum[0] += Centered ? value(pack.at[i]) : value(pack.at[i]) * value(pack.at[i]);
  });
  combine_row(sum, Plus{});
  Wide center = 0;
  if constexpr (Centered) {
    center = sum[0] / static_cast<Wide>(columns);
    sum[0] = 0;
    each_pack<T, Whole>(mine, [&](int k, int column, int count) {
      const FullPack<T> pack = in.pack(k, column, count);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const Wide d = value(pack.at[i]) - center;
        if (i < count) sum[0] += d * d;
      }
    });
    combine_row(sum, Plus{});
  }
  const Wide inverse = 1 / cpu::root_of(sum[0] / static_cast<Wide>(columns) + eps);
  // Not kept in registers, of which there are too few for the biases too: all rows but the first find them in
  // the cache.
  const RowPacks<T, Whole> gains_of(gain, mine);
  const RowPacks<T, Whole, false> biases_of(bias, mine);
  y.template write<Whole>(row, columns, mine, [&](int k, int column, int count) {
    FullPack<T> pack = in.pack(k, column, count);
    const FullPack<T> gains = gains_of.pack(k, column, count);
    FullPack<T> biases;
    if constexpr (Centered) biases = biases_of.pack(k, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide scaled = (value(pack.at[i]) - center) * inverse * (value(gains.at[i]) + offset);
      put(pack.at[i], Centered ? scaled + value(biases.at[i]) : scaled);
    }
    return pack;
  });
  if (row < rows && threadIdx.x == 0) {
    if constexpr (Centered) mean[row] = center;
    rstd[row] = inverse;
  }
}

// With n = (x - mean) rstd and g = dy gain: dx = rstd (g - avg(g) - n avg(g n)), without avg(g) if the norm
// does not center. A residual, if there is one, is added before dx is rounded.
template <class T, bool Centered, bool Whole>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    norm_backward_kernel(T* dx, const T* residual, const T* dy, const T* x, const Accumulate<T>* mean,
                         const Accumulate<T>* rstd, const T* gain, Accumulate<T> offset, int64_t rows,
                         int columns) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int mine = row < rows ? columns : 0;
  const RowPacks<T, Whole> in(x + row * columns, mine);
  const RowPacks<T, Whole> grad(dy + row * columns, mine);
  Wide center = 0;
  Wide inverse = 0;
  if (row < rows) {
    if constexpr (Centered) center = mean[row];
    inverse = rstd[row];
  }
  const RowPacks<T, Whole, false> gains_of(gain, mine);
  Wide sums[2] = {0, 0};
  each_pack<T, Whole>(mine, [&](int k, int column, int count) {
    const FullPack<T> xs = in.pack(k, column, count);
    const FullPack<T> dys = grad.pack(k, column, count);
    const FullPack<T> gains = gains_of.pack(k, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide g = value(dys.at[i]) * (value(gains.at[i]) + offset);
      if constexpr (Centered) sums[0] += g;
      sums[1] += g * ((value(xs.at[i]) - center) * inverse);
    }
  });
  combine_row(sums, Plus{});
  const Wide avg = sums[0] / static_cast<Wide>(columns);
  const Wide along = sums[1] / static_cast<Wide>(columns);
  // Keeping them from the start would need more registers; if packs are not whole, there are none even here.
  const RowPacks<T, Whole, Whole> gains_again(gain, mine);
  const RowPacks<T, Whole, false> residuals(residual != nullptr ? residual + row * columns : nullptr, mine);
  each_pack<T, Whole>(mine, [&](int k, int column, int count) {
    const FullPack<T> xs = in.pack(k, column, count);
    FullPack<T> dys = grad.pack(k, column, count);
    const FullPack<T> gains = gains_again.pack(k, column, count);
    FullPack<T> added;
    if (residual != nullptr) added = residuals.pack(k, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i >= count) continue;
      const Wide normal = (value(xs.at[i]) - center) * inverse;
      const Wide slope = inverse * (value(dys.at[i]) * (value(gains.at[i]) + offset) - avg - normal * along);
      put(dys.at[i], residual != nullptr ? slope + value(added.at[i]) : slope);
    }
    dys.template store<Whole>(dx + row * columns + column, count);
  });
}

// The threads of a row stride over its columns. Rows are short: queries and keys.
template <class T>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    rms_part_sums_kernel(Accumulate<T>* sums, const T* x, const T* dy, const T* gain, Accumulate<T> offset,
                         int64_t rows, int columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  Accumulate<T> sum[1] = {0};
  for (int c = static_cast<int>(threadIdx.x); row < rows && c < columns; c += static_cast<int>(blockDim.x)) {
    const Accumulate<T> in = value(x[row * columns + c]);
    sum[0] += dy == nullptr ? in * in : in * value(dy[row * columns + c]) * (value(gain[c]) + offset);
  }
  combine_row(sum, Plus{});
  if (row < rows && threadIdx.x == 0) sums[row] = sum[0];
}

// y = x rstd (gain + offset), or with dy its adjoint.
template <class T>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    rms_part_kernel(T* y, const T* dy, const T* x, const Accumulate<T>* rstd, const Accumulate<T>* along,
                    const T* gain, Accumulate<T> offset, int64_t rows, int columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const Accumulate<T> inverse = rstd[row];
  const Accumulate<T> along_x = dy == nullptr ? Accumulate<T>(0) : inverse * inverse * along[row];
  for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x)) {
    const int64_t at = row * columns + c;
    const Accumulate<T> by = value(gain[c]) + offset;
    put(y[at], dy == nullptr ? value(x[at]) * inverse * by
                             : inverse * (value(dy[at]) * by - value(x[at]) * along_x));
  }
}

}  // namespace

template <class T>
void rms_part_sums(CudaStream stream, Accumulate<T>* sums, const T* x, const T* dy, const T* gain,
                   double offset, int64_t rows, int64_t columns) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, 1);
  TRIFOLD_LAUNCH(rms_part_sums_kernel<T>, blocks.grid, blocks.block, 0, stream, sums, x, dy, gain,
                 static_cast<Accumulate<T>>(offset), rows, static_cast<int>(columns));
}

template <class T>
void rms_part(CudaStream stream, T* y, const T* x, const Accumulate<T>* rstd, const T* gain, double offset,
              int64_t rows, int64_t columns) {
  rms_part_backward<T>(stream, y, nullptr, x, rstd, nullptr, gain, offset, rows, columns);
}

template <class T>
void rms_part_backward(CudaStream stream, T* dx, const T* dy, const T* x, const Accumulate<T>* rstd,
                       const Accumulate<T>* along, const T* gain, double offset, int64_t rows,
                       int64_t columns) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, 1);
  TRIFOLD_LAUNCH(rms_part_kernel<T>, blocks.grid, blocks.block, 0, stream, dx, dy, x, rstd, along, gain,
                 static_cast<Accumulate<T>>(offset), rows, static_cast<int>(columns));
}

namespace {

template <class T, class Result>
void launch_norm(CudaStream stream, const Result& y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x,
                 const T* gain, const T* bias, int64_t rows, int64_t columns, double eps, double offset,
                 bool whole) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kHeld);
  const auto centered = whole ? norm_kernel<T, Result, true, true> : norm_kernel<T, Result, true, false>;
  const auto plain = whole ? norm_kernel<T, Result, false, true> : norm_kernel<T, Result, false, false>;
  const auto kernel = bias != nullptr ? centered : plain;
  TRIFOLD_LAUNCH(kernel, blocks.grid, blocks.block, 0, stream, y, mean, rstd, x, gain, bias, rows,
                 static_cast<int>(columns), static_cast<Accumulate<T>>(eps),
                 static_cast<Accumulate<T>>(offset));
}

}  // namespace

template <class T>
void norm(CudaStream stream, T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain,
          const T* bias, int64_t rows, int64_t columns, double eps, double offset) {
  launch_norm<T>(stream, WideResult<T>{y, columns}, mean, rstd, x, gain, bias, rows, columns, eps, offset,
                 packs<T>(columns, y, x, gain, bias));
}

void norm_narrow(CudaStream stream, const NarrowMatrix& y, float* mean, float* rstd, const Bfloat16* x,
                 const Bfloat16* gain, const Bfloat16* bias, double eps, double offset) {
  launch_norm<Bfloat16>(stream, NarrowResult{y}, mean, rstd, x, gain, bias, y.rows, y.columns, eps, offset,
                        packs<Bfloat16>(y.columns, x, gain, bias));
}

template <class T>
void norm_backward(CudaStream stream, T* dx, const T* residual, const T* dy, const T* x,
                   const Accumulate<T>* mean, const Accumulate<T>* rstd, const T* gain, double offset,
                   int64_t rows, int64_t columns) {
  if (rows == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kHeld);
  const bool whole = packs<T>(columns, dx, residual, dy, x, gain);
  const auto centered = whole ? norm_backward_kernel<T, true, true> : norm_backward_kernel<T, true, false>;
  const auto plain = whole ? norm_backward_kernel<T, false, true> : norm_backward_kernel<T, false, false>;
  const auto kernel = mean != nullptr ? centered : plain;
  TRIFOLD_LAUNCH(kernel, blocks.grid, blocks.block, 0, stream, dx, residual, dy, x, mean, rstd, gain,
                 static_cast<Accumulate<T>>(offset), rows, static_cast<int>(columns));
}

#define INSTANTIATE(T)                                                                                      \
  template void norm<T>(CudaStream, T*, Accumulate<T>*, Accumulate<T>*, const T*, const T*, const T*,       \
                        int64_t, int64_t, double, double);                                                  \
  template void norm_backward<T>(CudaStream, T*, const T*, const T*, const T*, const Accumulate<T>*,        \
                                 const Accumulate<T>*, const T*, double, int64_t, int64_t);                 \
  template void rms_part_sums<T>(CudaStream, Accumulate<T>*, const T*, const T*, const T*, double, int64_t, \
                                 int64_t);                                                                  \
  template void rms_part<T>(CudaStream, T*, const T*, const Accumulate<T>*, const T*, double, int64_t,      \
                            int64_t);                                                                       \
  template void rms_part_backward<T>(CudaStream, T*, const T*, const T*, const Accumulate<T>*,              \
                                     const Accumulate<T>*, const T*, double, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
