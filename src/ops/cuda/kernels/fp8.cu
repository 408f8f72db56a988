// Factors of FP8 products: the largest magnitude of a tensor, the scale that maps it to the format's largest
// number, and the tensor scaled and rounded, as it is or transposed.
#include "ops/cuda/kernels/narrow.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // rows and columns of a transposed tile

template <class T>
__global__ void __launch_bounds__(kThreads) largest_parts(float* most, const T* x, int64_t n, bool aligned) {
  constexpr int kPer = kPerPack<T>;
  float largest[1] = {0};
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPer; at < n;
       at += static_cast<int64_t>(gridDim.x) * kThreads * kPer) {
    const int count = count_at(at, n, kPer);
    FullPack<T> xs;
    xs.load(x + at, count, aligned);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < count) largest[0] = Larger{}(largest[0], magnitude(value(xs.at[i])));
  }
  combine_row(largest, Larger{});
  if (threadIdx.x == 0) most[blockIdx.x] = largest[0];
}

// A tensor of zeros stays zero; a tensor too small for a finite scale gets the largest finite one.
__global__ void __launch_bounds__(kThreads)
    scale_of_largest(Fp8Scale* scale, const float* most, int count, float goal) {
  float largest[1] = {0};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
    largest[0] = Larger{}(largest[0], most[i]);
  combine_row(largest, Larger{});
  if (threadIdx.x != 0) return;
  constexpr float kMost = 3.402823466e38F;
  const float wanted = goal / largest[0];
  const float to = largest[0] == 0 ? 1 : wanted > kMost ? kMost : wanted;
  scale->to = to;
  scale->from = 1 / to;
}

template <cpu::Fp8 Format, class T>
__global__ void __launch_bounds__(kThreads)
    to_fp8_kernel(uint8_t* y, const T* x, const Fp8Scale* scale, int64_t n, bool aligned) {
  constexpr int kPer = kPerPack<T>;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPer;
  if (at >= n) return;
  const float by = scale->to;
  const int count = count_at(at, n, kPer);
  FullPack<T> xs;
  xs.load(x + at, count, aligned);
  Numbers<uint8_t, kPer> ys;
#pragma unroll
  for (int i = 0; i < kPer; ++i)
    if (i < count) ys.at[i] = narrowed<Format>(value(xs.at[i]) * by);
  ys.store(y + at, count, aligned);
}

// x [rows, columns] becomes y [columns, rows], tile by tile. Both extents are multiples of 16, so packs are
// whole or empty.
template <cpu::Fp8 Format, class T>
__global__ void __launch_bounds__(kThreads)
    to_fp8_transposed_kernel(uint8_t* y, const T* x, const Fp8Scale* scale, int64_t rows, int64_t columns) {
  constexpr int kPer = kPerPack<T>;
  constexpr int kOut = 16;
  __shared__ uint8_t tile[kTile][kTile + 4];
  const float by = scale->to;
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int pack = static_cast<int>(threadIdx.x); pack < kTile * kTile / kPer; pack += kThreads) {
    const int r = pack / (kTile / kPer);
    const int c = pack % (kTile / kPer) * kPer;
    if (row0 + r >= rows || column0 + c >= columns) continue;
    FullPack<T> xs;
    xs.load(x + (row0 + r) * columns + column0 + c, kPer, true);
#pragma unroll
    for (int i = 0; i < kPer; ++i) tile[r][c + i] = narrowed<Format>(value(xs.at[i]) * by);
  }
  __syncthreads();
  for (int pack = static_cast<int>(threadIdx.x); pack < kTile * kTile / kOut; pack += kThreads) {
    const int c = pack / (kTile / kOut);
    const int r = pack % (kTile / kOut) * kOut;
    if (row0 + r >= rows || column0 + c >= columns) continue;
    Numbers<uint8_t, kOut> ys;
#pragma unroll
    for (int i = 0; i < kOut; ++i) ys.at[i] = tile[r + i][c];
    ys.store(y + (column0 + c) * rows + row0 + r, kOut, true);
  }
}

template <cpu::Fp8 Format, class T>
void scaled(CudaStream stream, void* scratch, uint8_t* y, Fp8Scale* scale, const T* x, int64_t rows,
            int64_t columns, bool transposed) {
  const int64_t n = rows * columns;
  auto* most = static_cast<float*>(scratch);
  const int64_t packs_of_block = int64_t{kThreads} * kPerPack<T>;
  const int64_t wanted = parts(n, packs_of_block * 4);
  constexpr int64_t kMostParts = kFp8Scratch / sizeof(float);
  const auto count = static_cast<unsigned>(wanted < kMostParts ? wanted : kMostParts);
  const bool aligned = packs<T>(n, x) && packs<uint8_t>(n, y);
  TRIFOLD_LAUNCH((largest_parts<T>), dim3(count), dim3(kThreads), 0, stream, most, x, n, packs<T>(n, x));
  TRIFOLD_LAUNCH((scale_of_largest), dim3(1), dim3(kThreads), 0, stream, scale, most, static_cast<int>(count),
                 cpu::Fp8Of<Format>::kLargest);
  if (transposed)
    TRIFOLD_LAUNCH(
        (to_fp8_transposed_kernel<Format, T>),
        dim3(static_cast<unsigned>(parts(columns, kTile)), static_cast<unsigned>(parts(rows, kTile))),
        dim3(kThreads), 0, stream, y, x, scale, rows, columns);
  else
    TRIFOLD_LAUNCH((to_fp8_kernel<Format, T>), dim3(static_cast<unsigned>(parts(n, packs_of_block))),
                   dim3(kThreads), 0, stream, y, x, scale, n, aligned);
}

}  // namespace

void to_fp8(CudaStream stream, void* scratch, uint8_t* y, Fp8Scale* scale, const Bfloat16* x, int64_t rows,
            int64_t columns, bool transposed, cpu::Fp8 format) {
  if (format == cpu::Fp8::E4M3)
    scaled<cpu::Fp8::E4M3>(stream, scratch, y, scale, x, rows, columns, transposed);
  else
    scaled<cpu::Fp8::E5M2>(stream, scratch, y, scale, x, rows, columns, transposed);
}

}  // namespace trifold::cuda
