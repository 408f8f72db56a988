// Matrix products of raw row-major memory on the calling thread, and the fixed tiling that lets threads share
// one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "ops/kernels.h"

namespace trifold::cpu {

// One operand: row i begins at data + i * stride. `transposed`: its transpose is used in the product.
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

// The same for 16-bit factors T, summed in f32, into C: T (rounded once) or f32.
//
// gemm_block_native computes the product in oneDNN with T's own instructions; if the processor or the library
// has none, it returns false and leaves c unchanged. Descriptions of products are kept per thread.
// gemm_block_widened works everywhere: it converts the factors with `kernels`, a limited depth at a time, and
// multiplies in f32.
template <class C, class T>
bool gemm_block_native(C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m, int64_t n, int64_t k,
                       double alpha, double beta);
template <class C, class T>
void gemm_block_widened(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b,
                        int64_t m, int64_t n, int64_t k, double alpha, double beta);

// The product of any type on the calling thread, the fastest of these.
template <class C, class T>
void gemm_alone(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta);

// The product over a pool: c is cut into tiles that depend on (m, n, k) alone, never on the number of
// workers, and every worker computes some of them with gemm_block, so the result has the same bits on any
// pool. C and T are one type, or C is f32 and T a 16-bit type.
template <class C, class T>
void gemm_tiled(ThreadPool& pool, const StorageKernels<T>& kernels, C* c, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta);

// How gemm_tiled cuts c.
struct Tiling {
  int64_t rows;     // of a tile
  int64_t columns;  // of a tile
};
Tiling tiling_for(int64_t m, int64_t n, int64_t k);

// Calls body(row, column, rows, columns) for the tiles [begin, end) of c [m, n], counted row by row. `joins`: tiles of a
// row that follow each other are one call, as each call packs its operands again; see joins_tiles.
void over_tiles(const Tiling& tile, int64_t m, int64_t n, int64_t begin, int64_t end, bool joins,
                FunctionRef<void(int64_t row, int64_t column, int64_t rows, int64_t columns)> body);

// Whether the bits of a call of at most 256 rows do not depend on how many columns it has, two or more. With f32 and a
// second factor that is not transposed, oneDNN sums in an order of the depth alone; with AVX, AVX2 and AVX-512.
template <class T>
bool joins_tiles(const Matrix<T>& second) {
  return std::is_same_v<T, float> && !second.transposed;
}

// Sets OpenMP, on which oneDNN runs, to one thread for the calling thread.
void use_one_openmp_thread();

}  // namespace trifold::cpu
