// Factors of FP8 products with scales of blocks (ops/narrow.h). A block of threads has 128 x 128 elements, so every scale
// is found where it is used, and each factor takes one pass.
#include "ops/cuda/kernels/narrow.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSide = static_cast<int>(kNarrowBlock);
constexpr int kPer = kPerPack<Bfloat16>;
constexpr int kPacks = kSide * kSide / kPer / kThreads;  // per thread
constexpr int kOut = 16;  // codes that a thread writes at a time, of a turned factor

// The row and the first column of pack `number` of this thread within its block; 16 lanes have a row.
__device__ inline int row_of(int number) {
  return (static_cast<int>(threadIdx.x) + number * kThreads) / kBlockLanes;
}
__device__ inline int column_of(int number) {
  return (static_cast<int>(threadIdx.x) + number * kThreads) % kBlockLanes * kPer;
}

struct Copied {
  __device__ void operator()(float& y, float x) const { y = x; }
};

// w [rows, columns] with a scale for 128 x 128 elements; Turned: codes are [columns, rows].
template <bool Turned>
__global__ void __launch_bounds__(kThreads, 3)
    narrow_weight_kernel(uint8_t* codes, float* scales, const Bfloat16* w, int64_t rows, int64_t columns,
                         int64_t stride, bool aligned) {
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kSide;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kSide;
  FullPack<Bfloat16> xs[kPacks];
  int counts[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t row = row0 + row_of(k), column = column0 + column_of(k);
    counts[k] = row < rows && column < columns ? kPer : 0;
    xs[k].load(w + row * columns + column, counts[k], aligned);
  }
  float largest[1] = {0};
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < counts[k]) largest[0] = Larger{}(largest[0], magnitude(value(xs[k].at[i])));
  combine_row(largest, Larger{});
  const cpu::BlockScale scale = cpu::block_scale(largest[0]);
  if (threadIdx.x == 0)
    scales[Turned ? blockIdx.x * stride + blockIdx.y : blockIdx.y * stride + blockIdx.x] = scale.from;
  __shared__ uint8_t tile[Turned ? kSide : 1][kSide + 4];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (counts[k] == 0) continue;
    Numbers<uint8_t, kPer> ys;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      ys.at[i] = narrowed<cpu::Fp8::E4M3>(value(xs[k].at[i]) * scale.to);
      if constexpr (Turned) tile[row_of(k)][column_of(k) + i] = ys.at[i];
    }
    if constexpr (!Turned) ys.store(codes + (row0 + row_of(k)) * columns + column0 + column_of(k));
  }
  if constexpr (Turned) {
    __syncthreads();
    for (int pack = static_cast<int>(threadIdx.x); pack < kSide * kSide / kOut; pack += kThreads) {
      const int c = pack / (kSide / kOut);
      const int r = pack % (kSide / kOut) * kOut;
      if (row0 + r >= rows || column0 + c >= columns) continue;
      Numbers<uint8_t, kOut> ys;
#pragma unroll
      for (int i = 0; i < kOut; ++i) ys.at[i] = tile[r + i][c];
      ys.store(codes + (column0 + c) * rows + row0 + r);
    }
  }
}

// The elements that a narrow matrix represents: of one that is still wide, and of one that is narrow. All lanes of a
// warp must call `pack`.
struct WideRows {
  const Bfloat16* data;
  int64_t rows, columns;
  bool aligned;

  __device__ inline FullPack<Bfloat16> pack(int64_t row, int64_t column, int count) const {
    FullPack<Bfloat16> xs;
    xs.load(data + row * columns + column, count, aligned);
    const cpu::BlockScale scale = scale_of_lanes(xs, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < count)
        put(xs.at[i],
            cpu::value_of_fp8<cpu::Fp8::E4M3>(narrowed<cpu::Fp8::E4M3>(value(xs.at[i]) * scale.to)) *
                scale.from);
    return xs;
  }
};
struct NarrowRows {
  const uint8_t* codes;
  const float* scales;
  int64_t rows, columns;

  __device__ inline FullPack<Bfloat16> pack(int64_t row, int64_t column, int count) const {
    FullPack<Bfloat16> xs{};
    if (count == 0) return xs;
    Numbers<uint8_t, kPer> from;
    from.load(codes + row * columns + column);
    const float scale = scales[column / kSide * rows + row];
#pragma unroll
    for (int i = 0; i < kPer; ++i) put(xs.at[i], cpu::value_of_fp8<cpu::Fp8::E4M3>(from.at[i]) * scale);
    return xs;
  }
};

// Columns of x with a scale for 128 rows: codes [columns, rows], scales [blocks of rows, columns]; and, unless `sums` is
// null, their sums over these rows [blocks of rows, columns]. Half of the threads have the upper 64 rows of a column
// each, the others the lower ones.
template <class Rows>
__global__ void __launch_bounds__(kThreads, 1)
    turn_kernel(uint8_t* codes, float* scales, float* sums, Rows x) {
  constexpr int kHalf = kSide / 2;
  __shared__ Bfloat16 tile[kSide][kSide + 2];
  __shared__ float most[2][kSide];
  __shared__ float lower_sums[kSide];
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kSide;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kSide;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t row = row0 + row_of(k), column = column0 + column_of(k);
    const int count = row < x.rows && column < x.columns ? kPer : 0;
    const FullPack<Bfloat16> xs = x.pack(row, column, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i < count)
        tile[row_of(k)][column_of(k) + i] = xs.at[i];
      else
        put(tile[row_of(k)][column_of(k) + i], 0.0F);
    }
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % kSide;
  const int half = static_cast<int>(threadIdx.x) / kSide;
  float largest = 0, sum = 0;
  for (int r = 0; r < kHalf; ++r) {
    const float number = value(tile[half * kHalf + r][column]);
    largest = Larger{}(largest, magnitude(number));
    sum += number;
  }
  most[half][column] = largest;
  if (half == 1) lower_sums[column] = sum;
  __syncthreads();
  const cpu::BlockScale scale = cpu::block_scale(Larger{}(most[0][column], most[1][column]));
  if (column0 + column >= x.columns) return;
  if (half == 0) {
    scales[blockIdx.y * x.columns + column0 + column] = scale.from;
    if (sums != nullptr) sums[blockIdx.y * x.columns + column0 + column] = sum + lower_sums[column];
  }
  for (int r = half * kHalf; r < (half + 1) * kHalf; r += kOut) {
    if (row0 + r >= x.rows) return;
    Numbers<uint8_t, kOut> ys;
#pragma unroll
    for (int i = 0; i < kOut; ++i) ys.at[i] = narrowed<cpu::Fp8::E4M3>(value(tile[r + i][column]) * scale.to);
    ys.store(codes + (column0 + column) * x.rows + row0 + r);
  }
}

// total[c] = the sum of sums [blocks, columns] over the blocks, in their order; added to total if `accumulate`.
__global__ void __launch_bounds__(kThreads)
    add_block_sums(float* total, const float* sums, int64_t blocks, int64_t columns, bool accumulate) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += sums[block * columns + column];
  total[column] = accumulate ? total[column] + sum : sum;
}

dim3 squares(int64_t rows, int64_t columns) {
  return dim3(static_cast<unsigned>(parts(columns, kSide)), static_cast<unsigned>(parts(rows, kSide)));
}

}  // namespace

void narrow_rows(CudaStream stream, const NarrowMatrix& y, const Bfloat16* x) {
  narrow_map<1>(stream, y, Copied{}, In<Bfloat16>{x, y.columns});
}

void narrow_weight(CudaStream stream, uint8_t* codes, float* scales, const Bfloat16* w, int64_t rows,
                   int64_t columns, bool turned) {
  if (rows == 0 || columns == 0) return;
  const bool aligned = packs<Bfloat16>(columns, w);
  const int64_t stride = weight_scale_stride(turned ? rows : columns);
  if (turned)
    TRIFOLD_LAUNCH((narrow_weight_kernel<true>), squares(rows, columns), dim3(kThreads), 0, stream, codes,
                   scales, w, rows, columns, stride, aligned);
  else
    TRIFOLD_LAUNCH((narrow_weight_kernel<false>), squares(rows, columns), dim3(kThreads), 0, stream, codes,
                   scales, w, rows, columns, stride, aligned);
}

void turn_rows(CudaStream stream, uint8_t* codes, float* scales, float* sums, const Bfloat16* x, int64_t rows,
               int64_t columns) {
  if (rows == 0 || columns == 0) return;
  TRIFOLD_LAUNCH((turn_kernel<WideRows>), squares(rows, columns), dim3(kThreads), 0, stream, codes, scales,
                 sums, WideRows{x, rows, columns, packs<Bfloat16>(columns, x)});
}

void turn_rows(CudaStream stream, uint8_t* codes, float* scales, float* sums, const NarrowMatrix& x) {
  if (x.rows == 0 || x.columns == 0) return;
  TRIFOLD_LAUNCH((turn_kernel<NarrowRows>), squares(x.rows, x.columns), dim3(kThreads), 0, stream, codes,
                 scales, sums, NarrowRows{x.codes, x.scales, x.rows, x.columns});
}

void add_turned_sums(CudaStream stream, float* total, const float* sums, int64_t rows, int64_t columns,
                     bool accumulate) {
  if (columns == 0) return;
  TRIFOLD_LAUNCH((add_block_sums), dim3(static_cast<unsigned>(parts(columns, kThreads))), dim3(kThreads), 0,
                 stream, total, sums, scale_blocks_of(rows), columns, accumulate);
}

}  // namespace trifold::cuda
