// A matrix product in tiles of shared memory, the reference for tests of the library.
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"

namespace trifold::cuda {

namespace {

constexpr int kTile = 16;

// Element (row, column) of op(x), zero outside; rows of x are `stride` elements apart.
template <class T>
__device__ inline Accumulate<T> element(const T* x, int64_t stride, bool transposed, int64_t row,
                                        int64_t column, int64_t rows, int64_t columns) {
  if (row >= rows || column >= columns) return 0;
  return value(transposed ? x[column * stride + row] : x[row * stride + column]);
}

template <class T, class C>
__global__ void __launch_bounds__(kTile* kTile)
    gemm_kernel(C* c, const T* a, bool transpose_a, const T* b, bool transpose_b, int64_t m, int64_t n,
                int64_t k, Accumulate<T> alpha, Accumulate<T> beta) {
  using Wide = Accumulate<T>;
  __shared__ Wide left[kTile][kTile + 1];
  __shared__ Wide right[kTile][kTile + 1];
  const auto x = static_cast<int>(threadIdx.x) % kTile;
  const auto y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile + y;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile + x;
  Wide sum = 0;
  for (int64_t d = 0; d < k; d += kTile) {
    left[y][x] = element(a, transpose_a ? m : k, transpose_a, row, d + x, m, k);
    right[y][x] = element(b, transpose_b ? k : n, transpose_b, d + y, column, k, n);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  if (row >= m || column >= n) return;
  C& out = c[row * n + column];
  const Wide old = beta != 0 ? static_cast<Wide>(value(out)) * beta : Wide(0);
  put(out, alpha * sum + old);
}

}  // namespace

template <class T, class C>
void plain_gemm(CudaStream stream, C* c, const T* a, bool transpose_a, const T* b, bool transpose_b,
                int64_t m, int64_t n, int64_t k, double alpha, double beta) {
  using Wide = Accumulate<T>;
  if (m == 0 || n == 0) return;
  const dim3 grid(static_cast<unsigned>(parts(m, kTile)), static_cast<unsigned>(parts(n, kTile)));
  TRIFOLD_LAUNCH((gemm_kernel<T, C>), grid, dim3(kTile * kTile), 0, stream, c, a, transpose_a, b, transpose_b,
                 m, n, k, static_cast<Wide>(alpha), static_cast<Wide>(beta));
}

#define INSTANTIATE(T, C)                                                                                   \
  template void plain_gemm<T, C>(CudaStream, C*, const T*, bool, const T*, bool, int64_t, int64_t, int64_t, \
                                 double, double);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(Bfloat16, Bfloat16)
INSTANTIATE(Bfloat16, float)
INSTANTIATE(Float16, Float16)
INSTANTIATE(Float16, float)
#undef INSTANTIATE

}  // namespace trifold::cuda
