// Matrix products of raw row-major memory: on the calling thread, or over a pool by a fixed tiling.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "ops/kernels.h"

namespace trifold::cpu {

// An operand: row i begins at data + i * stride. If `transposed`, op(x) is its transpose, else x itself.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed = false;
};

// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c; with beta 0, c need not be initialised. Runs on the calling
// thread: f32 through oneDNN, f64 through Eigen. The order of sums depends on (m, n, k), transposes and strides only.
void gemm_block(float* c, int64_t c_stride, Matrix<float> a, Matrix<float> b, int64_t m, int64_t n, int64_t k,
                double alpha, double beta);
void gemm_block(double* c, int64_t c_stride, Matrix<double> a, Matrix<double> b, int64_t m, int64_t n,
                int64_t k, double alpha, double beta);

// gemm_block for factors of a 16-bit type T, summed in f32. C is T (rounded once) or f32.
//
// gemm_block_native calls oneDNN with the processor's instructions for T; if there are none, it returns false and
// leaves c unchanged. Descriptions of products are cached per thread. gemm_block_widened works everywhere: it converts
// the factors to f32 with `kernels`, a part of the depth at a time, and multiplies in f32.
template <class C, class T>
bool gemm_block_native(C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m, int64_t n, int64_t k,
                       double alpha, double beta);
template <class C, class T>
void gemm_block_widened(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b,
                        int64_t m, int64_t n, int64_t k, double alpha, double beta);

// gemm_block for any types, by the fastest of the functions above.
template <class C, class T>
void gemm_alone(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta);

// gemm_block over a pool: c is divided into tiles that depend on (m, n, k) only, never on the number of workers, and
// workers compute tiles with gemm_alone, so the result has the same bits on any pool. C and T are one type, or C is f32
// and T a 16-bit type.
template <class C, class T>
void gemm_tiled(ThreadPool& pool, const StorageKernels<T>& kernels, C* c, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta);

// The tiles of gemm_tiled: `rows` x `columns`, smaller at the ends of c.
struct Tiling {
  int64_t rows;
  int64_t columns;
};
Tiling tiling_for(int64_t m, int64_t n, int64_t k);

// Calls body(row, column, rows, columns) for the tiles [begin, end) of c [m, n], counted row by row. With `joins`, it
// is called once for consecutive tiles of a row, which saves repeated packing of operands; see joins_tiles.
void over_tiles(const Tiling& tile, int64_t m, int64_t n, int64_t begin, int64_t end, bool joins,
                FunctionRef<void(int64_t row, int64_t column, int64_t rows, int64_t columns)> body);

// Whether tiles may be joined: whether a call of at most 256 rows and at least two columns has the same bits however
// many columns it has. True for f32 with a second factor that is not transposed: with AVX, AVX2 and AVX-512, oneDNN's
// order of sums then depends on the depth only.
template <class T>
bool joins_tiles(const Matrix<T>& second) {
  return std::is_same_v<T, float> && !second.transposed;
}

// Limits OpenMP, which oneDNN uses, to one thread in calls from the calling thread.
void use_one_openmp_thread();

}  // namespace trifold::cpu
