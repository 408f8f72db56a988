// Sums over the rows of a matrix in two stages of fixed extent: blocks sum a part of the rows for a strip of
// columns, and then the parts' sums are added in f64. The number of parts depends on the shape only.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 1024;  // target: enough for a GPU, few enough that adding their sums is cheap
constexpr int64_t kPartRows = 32;  // minimum rows of a part, even if that makes few blocks
constexpr int kLoads = 4;          // loads in flight per thread, of two arrays
constexpr int kLoadsOfOne = 6;     // the same of one array; more would take registers of a block
constexpr int kDown = 32;       // parts that a block of column_totals adds in parallel: there are few blocks
constexpr int kTotalLoads = 8;  // loads in flight per thread of column_totals: all of 256 parts

// The division of a matrix: blocks of `lanes` packs of columns times `down` rows, each for a strip of columns
// and part_rows rows.
struct Parts {
  int lanes, down;
  int64_t strips, part_rows, count;
};
Parts parts_of(int64_t rows, int64_t columns, size_t size_of_number) {
  const auto per = static_cast<int64_t>(16 / size_of_number);
  Parts division{};
  division.lanes = 1;
  while (division.lanes < kWarp && division.lanes * per < columns) division.lanes *= 2;
  division.down = kThreads / division.lanes;
  division.strips = parts(columns, division.lanes * per);
  const int64_t least = division.down > kPartRows ? division.down : kPartRows;
  const int64_t wanted = parts(kBlocks, division.strips);
  const int64_t most = parts(rows, least);
  division.part_rows = parts(rows, wanted < most ? wanted : most);
  division.count = parts(rows, division.part_rows);
  return division;
}

// A pack of a matrix: from row `row`, columns [column, column + count).
struct PackRange {
  int64_t row, columns, column;
  int count;
  __device__ inline int64_t offset() const { return row * columns + column; }
};

// The terms of a sum: load() reads a pack of a row, and add() later adds its elements to a and b.
template <class T>
struct NormTerms {
  static constexpr int kSums = 2;
  static constexpr int kArrays = 2;
  const T* dy;
  const T* x;
  const Accumulate<T>* mean;
  const Accumulate<T>* rstd;
  struct Loaded {
    FullPack<T> dys, xs;
    Accumulate<T> center, inverse;
  };
  template <bool Whole>
  __device__ inline void load(Loaded& in, const PackRange& at) const {
    in.dys.template load<Whole>(dy + at.offset(), at.count);
    in.xs.template load<Whole>(x + at.offset(), at.count);
    in.center = mean[at.row];
    in.inverse = rstd[at.row];
  }
  template <bool Whole>
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>* b, const Loaded& in,
                             const PackRange& at) const {
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i) {
      if (!Whole && i >= at.count) continue;
      a[i] += value(in.dys.at[i]) * ((value(in.xs.at[i]) - in.center) * in.inverse);
      b[i] += value(in.dys.at[i]);
    }
  }
};

template <class T>
struct RmsTerms {
  static constexpr int kSums = 1;
  static constexpr int kArrays = 2;
  const T* dy;
  const T* x;
  const Accumulate<T>* rstd;
  struct Loaded {
    FullPack<T> dys, xs;
    Accumulate<T> inverse;
  };
  template <bool Whole>
  __device__ inline void load(Loaded& in, const PackRange& at) const {
    in.dys.template load<Whole>(dy + at.offset(), at.count);
    in.xs.template load<Whole>(x + at.offset(), at.count);
    in.inverse = rstd[at.row];
  }
  template <bool Whole>
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>*, const Loaded& in, const PackRange& at) const {
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i)
      if (Whole || i < at.count) a[i] += value(in.dys.at[i]) * (value(in.xs.at[i]) * in.inverse);
  }
};

template <class T>
struct PlainTerms {
  static constexpr int kSums = 1;
  static constexpr int kArrays = 1;
  const T* dy;
  struct Loaded {
    FullPack<T> dys;
  };
  template <bool Whole>
  __device__ inline void load(Loaded& in, const PackRange& at) const {
    in.dys.template load<Whole>(dy + at.offset(), at.count);
  }
  template <bool Whole>
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>*, const Loaded& in, const PackRange& at) const {
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i)
      if (Whole || i < at.count) a[i] += value(in.dys.at[i]);
  }
};

// Also writes dx.
template <class T>
struct ReluTerms {
  static constexpr int kSums = 1;
  static constexpr int kArrays = 2;
  T* dx;
  const T* dy;
  const T* y;
  struct Loaded {
    FullPack<T> dys, ys;
  };
  template <bool Whole>
  __device__ inline void load(Loaded& in, const PackRange& at) const {
    in.dys.template load<Whole>(dy + at.offset(), at.count);
    in.ys.template load<Whole>(y + at.offset(), at.count);
  }
  template <bool Whole>
  __device__ inline void add(Accumulate<T>* a, Accumulate<T>*, const Loaded& in, const PackRange& at) const {
    FullPack<T> dxs;
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i) {
      if (!Whole && i >= at.count) continue;
      const Accumulate<T> d = value(in.ys.at[i]) > 0 ? value(in.dys.at[i]) : Accumulate<T>(0);
      put(dxs.at[i], d);
      a[i] += d;
    }
    dxs.template store<Whole>(dx + at.offset(), at.count);
  }
};

// sums [parts][Terms::kSums][columns]. Whole: rows consist of whole packs.
template <class T, class Terms, bool Whole>
__global__ void __launch_bounds__(kThreads, Terms::kArrays == 1 && Whole ? 4 : 1)
    column_parts(Accumulate<T>* sums, Terms terms, int64_t rows, int64_t columns, int64_t part_rows) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  constexpr int kSums = Terms::kSums;
  // Where a thread adds rows in their order, so that loads in flight do not change a sum.
  constexpr int kAhead = Terms::kArrays == 1 && Whole ? kLoadsOfOne : kLoads / Terms::kArrays;
  __shared__ Wide of_thread[kSums][kThreads * kPer];
  const auto lanes = static_cast<int>(blockDim.x);
  const auto down = static_cast<int>(blockDim.y);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x) * kPer;
  const int count = count_at(column, columns, kPer);
  const int64_t first = blockIdx.y * part_rows;
  const int64_t last = count == 0 ? first : first + part_rows < rows ? first + part_rows : rows;
  Wide sum[2][kPer] = {};
  for (int64_t row = first + threadIdx.y; row < last; row += kAhead * down) {
    typename Terms::Loaded in[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (row + k * down < last) terms.template load<Whole>(in[k], {row + k * down, columns, column, count});
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (row + k * down < last)
        terms.template add<Whole>(sum[0], sum[kSums - 1], in[k], {row + k * down, columns, column, count});
  }
  const int thread = static_cast<int>(threadIdx.y) * lanes + static_cast<int>(threadIdx.x);
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int i = 0; i < kPer; ++i) of_thread[s][thread * kPer + i] = sum[s][i];
  __syncthreads();
  // From here on a thread sums whole columns, so that adjacent threads write adjacent elements.
  const int width = lanes * kPer;
  const int64_t strip = static_cast<int64_t>(blockIdx.x) * width;
  for (int s = 0; s < kSums; ++s)
    for (int c = thread; c < width; c += kThreads) {
      if (strip + c >= columns) continue;
      Wide total = of_thread[s][c];
      for (int r = 1; r < down; ++r) total += of_thread[s][r * width + c];
      sums[(static_cast<int64_t>(blockIdx.y) * kSums + s) * columns + strip + c] = total;
    }
}

// total[k][c] = the sum over parts of sums[part][k][c], added to total if `accumulate`; block row k computes total k.
template <class Wide>
__global__ void __launch_bounds__(kWarp* kDown)
    column_totals(Wide* first, Wide* second, const Wide* sums, int64_t columns, int count, int kinds,
                  bool accumulate) {
  __shared__ double of_thread[kDown][kWarp];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const auto kind = static_cast<int>(blockIdx.y);
  double sum = 0;
  for (int p = static_cast<int>(threadIdx.y); p < count && column < columns; p += kTotalLoads * kDown) {
    Wide in[kTotalLoads];
#pragma unroll
    for (int k = 0; k < kTotalLoads; ++k)
      in[k] = p + k * kDown < count
                  ? sums[(static_cast<int64_t>(p + k * kDown) * kinds + kind) * columns + column]
                  : Wide(0);
#pragma unroll
    for (int k = 0; k < kTotalLoads; ++k) sum += static_cast<double>(in[k]);
  }
  of_thread[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int r = 1; r < kDown; ++r) sum += of_thread[r][threadIdx.x];
  Wide* total = kind == 0 ? first : second;
  total[column] = accumulate ? total[column] + static_cast<Wide>(sum) : static_cast<Wide>(sum);
}

template <class T, class Terms>
void sum_columns(CudaStream stream, void* scratch, Accumulate<T>* first, Accumulate<T>* second,
                 const Terms& terms, int64_t rows, int64_t columns, bool whole, bool accumulate) {
  using Wide = Accumulate<T>;
  if (columns == 0 || (rows == 0 && accumulate)) return;
  auto* sums = static_cast<Wide*>(scratch);
  const Parts division = rows == 0 ? Parts{} : parts_of(rows, columns, sizeof(T));
  const auto kernel = whole ? column_parts<T, Terms, true> : column_parts<T, Terms, false>;
  if (division.count > 0)
    TRIFOLD_LAUNCH(kernel,
                   dim3(static_cast<unsigned>(division.strips), static_cast<unsigned>(division.count)),
                   dim3(static_cast<unsigned>(division.lanes), static_cast<unsigned>(division.down)), 0,
                   stream, sums, terms, rows, columns, division.part_rows);
  add_parts<Wide>(stream, first, second, sums, columns, division.count, Terms::kSums, accumulate);
}

}  // namespace

template <class Wide>
void add_parts(CudaStream stream, Wide* first, Wide* second, const Wide* sums, int64_t columns, int64_t count,
               int kinds, bool accumulate) {
  TRIFOLD_LAUNCH((column_totals<Wide>),
                 dim3(static_cast<unsigned>(parts(columns, kWarp)), static_cast<unsigned>(kinds)),
                 dim3(kWarp, kDown), 0, stream, first, second, sums, columns, static_cast<int>(count), kinds,
                 accumulate);
}

size_t column_scratch(int64_t rows, int64_t columns, size_t size_of_number) {
  if (rows == 0 || columns == 0) return 0;
  const size_t size_of_wide = size_of_number < sizeof(float) ? sizeof(float) : size_of_number;
  return static_cast<size_t>(parts_of(rows, columns, size_of_number).count * 2 * columns) * size_of_wide;
}

template <class T>
void norm_backward_weight(CudaStream stream, void* scratch, Accumulate<T>* dgain, Accumulate<T>* dbias,
                          const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                          int64_t rows, int64_t columns, bool accumulate) {
  const bool whole = packs<T>(columns, dy, x);
  if (mean != nullptr)
    sum_columns<T>(stream, scratch, dgain, dbias, NormTerms<T>{dy, x, mean, rstd}, rows, columns, whole,
                   accumulate);
  else
    sum_columns<T>(stream, scratch, dgain, dgain, RmsTerms<T>{dy, x, rstd}, rows, columns, whole, accumulate);
}
template <class T>
void column_sum(CudaStream stream, void* scratch, Accumulate<T>* db, const T* dy, int64_t rows,
                int64_t columns, bool accumulate) {
  sum_columns<T>(stream, scratch, db, db, PlainTerms<T>{dy}, rows, columns, packs<T>(columns, dy),
                 accumulate);
}
template <class T>
void relu_backward(CudaStream stream, void* scratch, T* dx, Accumulate<T>* db, const T* dy, const T* y,
                   int64_t rows, int64_t columns, bool accumulate) {
  sum_columns<T>(stream, scratch, db, db, ReluTerms<T>{dx, dy, y}, rows, columns,
                 packs<T>(columns, dx, dy, y), accumulate);
}

#define INSTANTIATE(T)                                                                                 \
  template void norm_backward_weight<T>(CudaStream, void*, Accumulate<T>*, Accumulate<T>*, const T*,   \
                                        const T*, const Accumulate<T>*, const Accumulate<T>*, int64_t, \
                                        int64_t, bool);                                                \
  template void column_sum<T>(CudaStream, void*, Accumulate<T>*, const T*, int64_t, int64_t, bool);    \
  template void relu_backward<T>(CudaStream, void*, T*, Accumulate<T>*, const T*, const T*, int64_t,   \
                                 int64_t, bool);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
template void add_parts<float>(CudaStream, float*, float*, const float*, int64_t, int64_t, int, bool);
template void add_parts<double>(CudaStream, double*, double*, const double*, int64_t, int64_t, int, bool);

}  // namespace trifold::cuda
