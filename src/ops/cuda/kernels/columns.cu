// Sums over the rows of a matrix in two stages of fixed extent: blocks add a part of the rows for a strip of
// columns, and then the parts' sums are added in f64. How many parts there are depends on the shape alone.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kDown = 8;             // rows that a block adds side by side
constexpr int64_t kMostParts = 128;  // enough blocks for a GPU, few enough that their sums cost nothing
constexpr int64_t kPartRows = 32;    // at least

int64_t parts_of(int64_t rows) {
  const int64_t wanted = parts(rows, kPartRows);
  return wanted < kMostParts ? wanted : kMostParts;
}

// What is summed: from row `row`, columns [column, column + count), a pack's numbers are added to a and b.
template <class T>
struct NormTerms {
  static constexpr int kSums = 2;
  const T* dy;
  const T* x;
  const Accumulate<T>* mean;
  const Accumulate<T>* rstd;
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>* b, int64_t row, int64_t columns, int64_t column,
                             int count, bool aligned) const {
    FullPack<T> dys;
    FullPack<T> xs;
    dys.load(dy + row * columns + column, count, aligned);
    xs.load(x + row * columns + column, count, aligned);
    const Accumulate<T> center = mean[row];
    const Accumulate<T> inverse = rstd[row];
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i) {
      if (i >= count) continue;
      a[i] += value(dys.at[i]) * ((value(xs.at[i]) - center) * inverse);
      b[i] += value(dys.at[i]);
    }
  }
};

template <class T>
struct RmsTerms {
  static constexpr int kSums = 1;
  const T* dy;
  const T* x;
  const Accumulate<T>* rstd;
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>*, int64_t row, int64_t columns, int64_t column,
                             int count, bool aligned) const {
    FullPack<T> dys;
    FullPack<T> xs;
    dys.load(dy + row * columns + column, count, aligned);
    xs.load(x + row * columns + column, count, aligned);
    const Accumulate<T> inverse = rstd[row];
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i)
      if (i < count) a[i] += value(dys.at[i]) * (value(xs.at[i]) * inverse);
  }
};

template <class T>
struct PlainTerms {
  static constexpr int kSums = 1;
  const T* dy;
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>*, int64_t row, int64_t columns, int64_t column,
                             int count, bool aligned) const {
    FullPack<T> dys;
    dys.load(dy + row * columns + column, count, aligned);
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i)
      if (i < count) a[i] += value(dys.at[i]);
  }
};

// Writes dx besides.
template <class W>
struct ReluTerms {
  static constexpr int kSums = 1;
  W* dx;
  const W* dy;
  const W* y;
  __device__ inline void add(W* a, W*, int64_t row, int64_t columns, int64_t column, int count,
                             bool aligned) const {
    FullPack<W> dys;
    FullPack<W> ys;
    dys.load(dy + row * columns + column, count, aligned);
    ys.load(y + row * columns + column, count, aligned);
#pragma unroll
    for (int i = 0; i < kPerPack<W>; ++i) {
      if (i >= count) continue;
      dys.at[i] = ys.at[i] > 0 ? dys.at[i] : W(0);
      a[i] += dys.at[i];
    }
    dys.store(dx + row * columns + column, count, aligned);
  }
};

// sums [parts][Terms::kSums][columns]
template <class T, class Terms>
__global__ void __launch_bounds__(kWarp* kDown)
    column_parts(Accumulate<T>* sums, Terms terms, int64_t rows, int64_t columns, int64_t part_rows,
                 bool aligned) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  constexpr int kSums = Terms::kSums;
  __shared__ Wide of_row[kSums][kDown][kWarp * kPer];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * kPer;
  const int count = count_at(column, columns, kPer);
  const int64_t first = blockIdx.y * part_rows;
  const int64_t last = first + part_rows < rows ? first + part_rows : rows;
  Wide sum[2][kPer] = {};
  if (count > 0)
    for (int64_t row = first + threadIdx.y; row < last; row += kDown)
      terms.add(sum[0], sum[kSums - 1], row, columns, column, count, aligned);
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int i = 0; i < kPer; ++i) of_row[s][threadIdx.y][threadIdx.x * kPer + i] = sum[s][i];
  __syncthreads();
  // Now a thread adds up whole columns, so that neighbours write neighbours.
  const int thread = static_cast<int>(threadIdx.y * kWarp + threadIdx.x);
  const int64_t strip = static_cast<int64_t>(blockIdx.x) * kWarp * kPer;
  for (int s = 0; s < kSums; ++s)
    for (int c = thread; c < kWarp * kPer; c += kWarp * kDown) {
      if (strip + c >= columns) continue;
      Wide total = of_row[s][0][c];
      for (int r = 1; r < kDown; ++r) total += of_row[s][r][c];
      sums[(static_cast<int64_t>(blockIdx.y) * kSums + s) * columns + strip + c] = total;
    }
}

// total[k][c] += the parts' sums; the second block row is for the second total.
template <class Wide>
__global__ void __launch_bounds__(kWarp* kDown)
    column_totals(Wide* first, Wide* second, const Wide* sums, int64_t columns, int count, int kinds) {
  __shared__ double of_thread[kDown][kWarp];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const auto kind = static_cast<int>(blockIdx.y);
  double sum = 0;
  if (column < columns)
    for (int p = static_cast<int>(threadIdx.y); p < count; p += kDown)
      sum += static_cast<double>(sums[(static_cast<int64_t>(p) * kinds + kind) * columns + column]);
  of_thread[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int r = 1; r < kDown; ++r) sum += of_thread[r][threadIdx.x];
  Wide* total = kind == 0 ? first : second;
  total[column] += static_cast<Wide>(sum);
}

template <class T, class Terms>
void sum_columns(CudaStream stream, void* scratch, Accumulate<T>* first, Accumulate<T>* second,
                 const Terms& terms, int64_t rows, int64_t columns, bool aligned) {
  using Wide = Accumulate<T>;
  if (rows == 0 || columns == 0) return;
  auto* sums = static_cast<Wide*>(scratch);
  const int64_t part_rows = parts(rows, parts_of(rows));
  const auto count = static_cast<unsigned>(parts(rows, part_rows));
  const auto strips = static_cast<unsigned>(parts(columns, kWarp * kPerPack<T>));
  TRIFOLD_LAUNCH((column_parts<T, Terms>), dim3(strips, count), dim3(kWarp, kDown), 0, stream, sums, terms,
                 rows, columns, part_rows, aligned);
  TRIFOLD_LAUNCH((column_totals<Wide>), dim3(static_cast<unsigned>(parts(columns, kWarp)), Terms::kSums),
                 dim3(kWarp, kDown), 0, stream, first, second, sums, columns, static_cast<int>(count),
                 Terms::kSums);
}

}  // namespace

size_t column_scratch(int64_t rows, int64_t columns, size_t size_of_wide) {
  return static_cast<size_t>(parts_of(rows) * 2 * columns) * size_of_wide;
}

template <class T>
void norm_backward_weight(CudaStream stream, void* scratch, Accumulate<T>* dgain, Accumulate<T>* dbias,
                          const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                          int64_t rows, int64_t columns) {
  const bool aligned = packs<T>(columns, dy, x);
  if (mean != nullptr)
    sum_columns<T>(stream, scratch, dgain, dbias, NormTerms<T>{dy, x, mean, rstd}, rows, columns, aligned);
  else
    sum_columns<T>(stream, scratch, dgain, dgain, RmsTerms<T>{dy, x, rstd}, rows, columns, aligned);
}
template <class T>
void column_sum(CudaStream stream, void* scratch, Accumulate<T>* db, const T* dy, int64_t rows,
                int64_t columns) {
  sum_columns<T>(stream, scratch, db, db, PlainTerms<T>{dy}, rows, columns, packs<T>(columns, dy));
}
template <class W>
void relu_backward(CudaStream stream, void* scratch, W* dx, W* db, const W* dy, const W* y, int64_t rows,
                   int64_t columns) {
  sum_columns<W>(stream, scratch, db, db, ReluTerms<W>{dx, dy, y}, rows, columns,
                 packs<W>(columns, dx, dy, y));
}

#define INSTANTIATE(T)                                                                                 \
  template void norm_backward_weight<T>(CudaStream, void*, Accumulate<T>*, Accumulate<T>*, const T*,   \
                                        const T*, const Accumulate<T>*, const Accumulate<T>*, int64_t, \
                                        int64_t);                                                      \
  template void column_sum<T>(CudaStream, void*, Accumulate<T>*, const T*, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
template void relu_backward<float>(CudaStream, void*, float*, float*, const float*, const float*, int64_t,
                                   int64_t);
template void relu_backward<double>(CudaStream, void*, double*, double*, const double*, const double*,
                                    int64_t, int64_t);

}  // namespace trifold::cuda
