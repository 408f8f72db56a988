// Matrix products of raw row-major memory on the calling thread, and the fixed tiling that lets threads share
// one.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"

namespace trifold::cpu {

// One operand: row i begins at data + i * stride. `transposed` says that its transpose takes part in the
// product.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed = false;
};

// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c; with beta 0, c is only written. Runs on the calling
// thread alone: f32 through oneDNN, f64 through Eigen. The sums' order is fixed by (m, n, k), transposes and
// strides.
void gemm_block(float* c, int64_t c_stride, Matrix<float> a, Matrix<float> b, int64_t m, int64_t n, int64_t k,
                double alpha, double beta);
void gemm_block(double* c, int64_t c_stride, Matrix<double> a, Matrix<double> b, int64_t m, int64_t n,
                int64_t k, double alpha, double beta);

// The same over a pool: c is cut into tiles by (m, n, k) alone, never by the number of workers, and every
// worker computes some of them with gemm_block, so the result is the same bits on any pool.
template <class T>
void gemm_tiled(ThreadPool& pool, T* c, Matrix<T> a, Matrix<T> b, int64_t m, int64_t n, int64_t k,
                double alpha, double beta);

// How gemm_tiled cuts c.
struct Tiling {
  int64_t rows;     // of a tile
  int64_t columns;  // of a tile
};
Tiling tiling_for(int64_t m, int64_t n, int64_t k);

}  // namespace trifold::cpu
