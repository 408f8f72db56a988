// Matrix products in tiles of shared memory: the reference for tests of the library, and batches that it is not called for.
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

// Tiles of the matrices of a batch: block x has tile x % row_tiles of matrix x / row_tiles. The operands' `begin` is not
// read.
template <class T, class C>
__global__ void __launch_bounds__(kTile* kTile)
    gemm_kernel(C* c, const T* a, const T* b, BatchedProduct batch, int64_t row_tiles, Accumulate<T> alpha,
                Accumulate<T> beta) {
  using Wide = Accumulate<T>;
  __shared__ Wide left[kTile][kTile + 1];
  __shared__ Wide right[kTile][kTile + 1];
  const int64_t number = blockIdx.x / row_tiles;
  const int64_t outer = number / batch.inner;
  const int64_t inner = number - outer * batch.inner;
  const T* of_a = a + outer * batch.a.outer + inner * batch.a.inner;
  const T* of_b = b + outer * batch.b.outer + inner * batch.b.inner;
  const auto x = static_cast<int>(threadIdx.x) % kTile;
  const auto y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row = (blockIdx.x - number * row_tiles) * kTile + y;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile + x;
  Wide sum = 0;
  for (int64_t d = 0; d < batch.k; d += kTile) {
    left[y][x] = element(of_a, batch.a.row, batch.a.transposed, row, d + x, batch.m, batch.k);
    right[y][x] = element(of_b, batch.b.row, batch.b.transposed, d + y, column, batch.k, batch.n);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  if (row >= batch.m || column >= batch.n) return;
  C& out = c[outer * batch.c.outer + inner * batch.c.inner + row * batch.c.row + column];
  const Wide old = beta != 0 ? static_cast<Wide>(value(out)) * beta : Wide(0);
  put(out, alpha * sum + old);
}

}  // namespace

template <class T, class C>
void plain_batched_product(CudaStream stream, C* c, const T* a, const T* b, const BatchedProduct& batch) {
  using Wide = Accumulate<T>;
  const int64_t count = batch.outer * batch.inner;
  if (count == 0 || batch.m == 0 || batch.n == 0) return;
  const int64_t row_tiles = parts(batch.m, kTile);
  const dim3 grid(static_cast<unsigned>(count * row_tiles), static_cast<unsigned>(parts(batch.n, kTile)));
  TRIFOLD_LAUNCH((gemm_kernel<T, C>), grid, dim3(kTile * kTile), 0, stream, c + batch.c.begin,
                 a + batch.a.begin, b + batch.b.begin, batch, row_tiles, static_cast<Wide>(batch.alpha),
                 static_cast<Wide>(batch.beta));
}

template <class T, class C>
void plain_gemm(CudaStream stream, C* c, const T* a, bool transpose_a, const T* b, bool transpose_b,
                int64_t m, int64_t n, int64_t k, double alpha, double beta) {
  BatchedProduct one;
  one.m = m;
  one.n = n;
  one.k = k;
  one.a.row = transpose_a ? m : k;
  one.a.transposed = transpose_a;
  one.b.row = transpose_b ? k : n;
  one.b.transposed = transpose_b;
  one.c.row = n;
  one.alpha = alpha;
  one.beta = beta;
  plain_batched_product<T, C>(stream, c, a, b, one);
}

#define INSTANTIATE(T, C)                                                                                   \
  template void plain_gemm<T, C>(CudaStream, C*, const T*, bool, const T*, bool, int64_t, int64_t, int64_t, \
                                 double, double);                                                           \
  template void plain_batched_product<T, C>(CudaStream, C*, const T*, const T*, const BatchedProduct&);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(Bfloat16, Bfloat16)
INSTANTIATE(Bfloat16, float)
INSTANTIATE(Float16, Float16)
INSTANTIATE(Float16, float)
#undef INSTANTIATE

}  // namespace trifold::cuda
