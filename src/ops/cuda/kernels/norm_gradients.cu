// Layer norm and root-mean-square norm: dx and the gradients of gain and bias in one pass over the rows.
// Blocks process runs of rows, whose number depends on the shape only; a thread accumulates its columns'
// contributions to the two gradients in registers, and the blocks' sums are added in f64 (columns.cu), so the order
// of every sum is fixed. A pass for only dx, or only the gradients of gain and bias, runs the same kernel without the
// rest, so that schedules that compute them at different times get the same bits.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kFew = 2;                        // packs of a row per thread
constexpr int kBlockThreads = 256;             // for short rows
constexpr int64_t kMostBlocks = 512;           // enough for a GPU; their sums are small compared to the rows
constexpr int64_t kPartNumbers = 2048 * 1024;  // maximum elements of all blocks' sums

// The columns that the threads of one block hold.
template <class T>
constexpr int64_t kMostColumns = int64_t{kMostRowThreads} * kFew* kPerPack<T>;

// The number of blocks, and of rows that each processes.
struct Runs {
  int64_t blocks, rows;
};
int64_t most_blocks(int64_t rows, int64_t columns) {
  const int64_t fit = parts(kPartNumbers, 2 * columns);
  const int64_t wanted = fit < kMostBlocks ? fit : kMostBlocks;
  return wanted < rows ? wanted : rows;
}
Runs runs_of(int64_t rows, int64_t columns, int64_t together) {
  const int64_t each = parts(parts(rows, most_blocks(rows, columns)), together) * together;
  return {parts(rows, each), each};
}

// A thread's elements of a row.
template <class T>
struct RowPacks {
  FullPack<T> xs[kFew], dys[kFew];
  Accumulate<T> center, inverse;
};

// sums [blocks][Centered ? 2 : 1][columns]; dx or sums may be null, gain is needed for dx alone. Whole: rows
// consist of whole packs; then the next rows are read while the sums along these are combined, because few blocks
// fit a multiprocessor, and there is little else to read meanwhile.
//
// OnlySums: without dx. The kernel then only waits for memory, and has registers for two rows that are read ahead; the
// order of sums stays.
template <class T, bool Centered, bool Whole, bool OnlySums>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    norm_gradients_kernel(T* dx, Accumulate<T>* sums, const T* residual, const T* dy, const T* x,
                          const Accumulate<T>* mean, const Accumulate<T>* rstd, const T* gain,
                          Accumulate<T> offset, int64_t rows, int columns, int64_t run) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  constexpr int kKinds = Centered ? 2 : 1;
  constexpr int kRowsAhead = OnlySums ? 2 : 1;
  const int step = static_cast<int>(blockDim.x) * kPer;
  const int first = static_cast<int>(threadIdx.x) * kPer;
  // The number of elements of pack k that this thread has.
  const auto count_of = [&](int k) { return count_at(first + k * step, columns, kPer); };
  Wide total[kKinds][kFew][kPer] = {};
  FullPack<T> gains[kFew];
#pragma unroll
  for (int k = 0; k < kFew; ++k)
    if (!OnlySums && count_of(k) > 0) gains[k].template load<Whole>(gain + first + k * step, count_of(k));
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * run;
  const int64_t end = begin + run < rows ? begin + run : rows;
  const auto read = [&](RowPacks<T>& to, int64_t row) {
    const int64_t at = row * columns + first;
    to.center = to.inverse = 0;
    if (row >= end) return;
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      if (count_of(k) == 0) continue;
      to.xs[k].template load<Whole>(x + at + k * step, count_of(k));
      to.dys[k].template load<Whole>(dy + at + k * step, count_of(k));
    }
    if constexpr (Centered) to.center = mean[row];
    to.inverse = rstd[row];
  };
  RowPacks<T> next[kRowsAhead];
  if constexpr (Whole) {
#pragma unroll
    for (int a = 0; a < kRowsAhead; ++a) read(next[a], begin + threadIdx.y + a * blockDim.y);
  }
  const auto process = [&](int64_t top, RowPacks<T>& coming) {
    const int64_t row = top + threadIdx.y;
    const bool here = row < end;
    const int64_t at = row * columns + first;
    RowPacks<T> now;
    if constexpr (Whole) {
      now = coming;
      read(coming, row + kRowsAhead * blockDim.y);
    } else {
      read(now, row);  // there are no registers for two
    }
    auto& [xs, dys, center, inverse] = now;
    FullPack<T> added[kFew];  // used last, so they have time to arrive
#pragma unroll
    for (int k = 0; k < kFew; ++k)
      if (!OnlySums && residual != nullptr && here && count_of(k) > 0)
        added[k].template load<Whole>(residual + at + k * step, count_of(k));
    Wide along[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      const int count = count_of(k);
      if (!here || count == 0) continue;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        if (!Whole && i >= count) continue;
        const Wide normal = (value(xs[k].at[i]) - center) * inverse;
        const Wide slope = value(dys[k].at[i]);
        total[0][k][i] += slope * normal;
        if constexpr (Centered) total[kKinds - 1][k][i] += slope;
        if constexpr (OnlySums) continue;
        const Wide g = slope * (value(gains[k].at[i]) + offset);
        if constexpr (Centered) along[0] += g;
        along[1] += g * normal;
      }
    }
    if constexpr (OnlySums) return;
    combine_row(along, Plus{});
    const Wide average = along[0] / static_cast<Wide>(columns);
    const Wide share = along[1] / static_cast<Wide>(columns);
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      const int count = count_of(k);
      if (!here || count == 0) continue;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        if (!Whole && i >= count) continue;
        const Wide normal = (value(xs[k].at[i]) - center) * inverse;
        const Wide result =
            inverse * (value(dys[k].at[i]) * (value(gains[k].at[i]) + offset) - average - normal * share);
        put(dys[k].at[i], residual != nullptr ? result + value(added[k].at[i]) : result);
      }
      dys[k].template store<Whole>(dx + at + k * step, count);
    }
  };
  for (int64_t top = begin; top < end; top += kRowsAhead * blockDim.y)
#pragma unroll
    for (int a = 0; a < kRowsAhead; ++a)
      if (top + a * blockDim.y < end) process(top + a * blockDim.y, next[a]);
  if (sums == nullptr) return;
  // If a block processes several rows at a time, the threads of the first row add the sums of all rows.
  __shared__ Wide of_row[kBlockThreads * kFew * kPer];
  Wide* to = sums + static_cast<int64_t>(blockIdx.x) * kKinds * columns;
  const int width = kFew * step;
#pragma unroll
  for (int kind = 0; kind < kKinds; ++kind) {
    if (blockDim.y > 1) {
#pragma unroll
      for (int k = 0; k < kFew; ++k)
#pragma unroll
        for (int i = 0; i < kPer; ++i)
          of_row[static_cast<int>(threadIdx.y) * width + k * step + first + i] = total[kind][k][i];
      __syncthreads();
    }
    if (threadIdx.y == 0) {
#pragma unroll
      for (int k = 0; k < kFew; ++k)
#pragma unroll
        for (int i = 0; i < kPer; ++i) {
          if (i >= count_of(k)) continue;
          Wide sum = total[kind][k][i];
          for (int r = 1; r < static_cast<int>(blockDim.y); ++r)
            sum += of_row[r * width + k * step + first + i];
          to[static_cast<int64_t>(kind) * columns + first + k * step + i] = sum;
        }
    }
    if (blockDim.y > 1) __syncthreads();
  }
}

template <class T, bool OnlySums>
auto kernel_of(bool centered, bool whole) {
  if (centered)
    return whole ? norm_gradients_kernel<T, true, true, OnlySums>
                 : norm_gradients_kernel<T, true, false, OnlySums>;
  return whole ? norm_gradients_kernel<T, false, true, OnlySums>
               : norm_gradients_kernel<T, false, false, OnlySums>;
}

// The threads of a row, and the rows that a block processes at a time.
template <class T>
RowBlocks blocks_of(int64_t columns) {
  return row_blocks<T>(1, columns, kFew);
}

}  // namespace

size_t norm_gradient_scratch(int64_t rows, int64_t columns, size_t size_of_number) {
  if (rows == 0 || columns == 0) return 0;
  const size_t of_columns = column_scratch(rows, columns, size_of_number);
  const size_t of_runs = static_cast<size_t>(most_blocks(rows, columns) * 2 * columns) *
                         (size_of_number < sizeof(float) ? sizeof(float) : size_of_number);
  return of_columns > of_runs ? of_columns : of_runs;
}

template <class T>
void norm_gradients(CudaStream stream, void* scratch, T* dx, Accumulate<T>* dgain, Accumulate<T>* dbias,
                    const T* residual, const T* dy, const T* x, const Accumulate<T>* mean,
                    const Accumulate<T>* rstd, const T* gain, double offset, int64_t rows, int64_t columns,
                    bool accumulate) {
  using Wide = Accumulate<T>;
  if (rows == 0 || columns == 0 || columns > kMostColumns<T>) {
    if (dx != nullptr) norm_backward<T>(stream, dx, residual, dy, x, mean, rstd, gain, offset, rows, columns);
    if (dgain != nullptr)
      norm_backward_weight<T>(stream, scratch, dgain, dbias, dy, x, mean, rstd, rows, columns, accumulate);
    return;
  }
  const dim3 block = blocks_of<T>(columns).block;
  const Runs runs = runs_of(rows, columns, block.y);
  const bool whole = packs<T>(columns, dx, residual, dy, x, gain);
  const auto kernel = dx != nullptr ? kernel_of<T, false>(mean != nullptr, whole)
                                    : kernel_of<T, true>(mean != nullptr, whole);
  auto* sums = dgain != nullptr ? static_cast<Wide*>(scratch) : nullptr;
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(runs.blocks)), block, 0, stream, dx, sums, residual, dy,
                 x, mean, rstd, gain, static_cast<Wide>(offset), rows, static_cast<int>(columns), runs.rows);
  if (sums == nullptr) return;
  add_parts<Wide>(stream, dgain, dbias, sums, columns, runs.blocks, mean != nullptr ? 2 : 1, accumulate);
}

#define INSTANTIATE(T)                                                                                       \
  template void norm_gradients<T>(CudaStream, void*, T*, Accumulate<T>*, Accumulate<T>*, const T*, const T*, \
                                  const T*, const Accumulate<T>*, const Accumulate<T>*, const T*, double,    \
                                  int64_t, int64_t, bool);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
