#include "ops/gemm.h"

#include <dnnl.h>

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "ops/launch_support.h"

// From GNU OpenMP's omp.h, which is not found by a compiler with another OpenMP.
extern "C" void omp_set_num_threads(int count);

namespace trifold::cpu {

namespace {

constexpr int64_t kTileRows = 512;
constexpr int64_t kTileColumns = 768;
constexpr int64_t kTiles = 16;                       // target number of tiles, so that many workers have work
constexpr int64_t kTileProducts = int64_t{4} << 20;  // minimum multiplications of a tile; takes precedence
constexpr int64_t kUnit = 16;                        // tiles are whole vectors
constexpr int64_t kFewRows = 256;                    // maximum height of tiles that a call may join

// The smallest multiple of kUnit with no more parts than `tile`, which makes the parts equal.
int64_t even_tile(int64_t extent, int64_t tile) {
  const int64_t count = std::max<int64_t>(1, parts(extent, tile));
  return std::max(kUnit, parts(parts(extent, count), kUnit) * kUnit);
}

// c = beta * c; a beta of 0 also clears NaNs and infinities.
void scale_rows(float* c, int64_t c_stride, int64_t m, int64_t n, float beta) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * c_stride + j] = beta == 0 ? 0 : beta * c[i * c_stride + j];
}

}  // namespace

// The number of OpenMP threads is a setting of the calling thread; the pool splits the work itself.
void use_one_openmp_thread() {
  static thread_local bool done = false;
  if (done) return;
  omp_set_num_threads(1);
  done = true;
}

// Large tiles repeat less packing of the operands; measured on a Zen 4 core, 512 x 768 reaches 98 % of the
// speed of the whole product. Smaller products are halved along the longer side while that leaves enough work
// in a tile.
Tiling tiling_for(int64_t m, int64_t n, int64_t k) {
  Tiling tile{even_tile(m, kTileRows), even_tile(n, kTileColumns)};
  while (parts(m, tile.rows) * parts(n, tile.columns) < kTiles) {
    Tiling half = tile;
    if (tile.rows >= tile.columns) {
      half.rows = even_tile(m, (tile.rows + 1) / 2);
    } else {
      half.columns = even_tile(n, (tile.columns + 1) / 2);
    }
    const bool changed = half.rows != tile.rows || half.columns != tile.columns;
    if (!changed || half.rows * half.columns * k < kTileProducts) break;
    tile = half;
  }
  return tile;
}

void over_tiles(const Tiling& tile, int64_t m, int64_t n, int64_t begin, int64_t end, bool joins,
                FunctionRef<void(int64_t, int64_t, int64_t, int64_t)> body) {
  const int64_t across = parts(n, tile.columns);
  const bool few_rows = tile.rows <= kFewRows;
  for (int64_t t = begin; t < end;) {
    const int64_t row = t / across * tile.rows;
    const int64_t column = t % across * tile.columns;
    int64_t columns = std::min(tile.columns, n - column);
    for (++t; joins && few_rows && t < end && t % across != 0; ++t) {
      const int64_t next = std::min(tile.columns, n - column - columns);
      if (next == 1 || columns + next > kTileColumns) break;
      columns += next;
    }
    body(row, column, std::min(tile.rows, m - row), columns);
  }
}

void gemm_block(float* c, int64_t c_stride, Matrix<float> a, Matrix<float> b, int64_t m, int64_t n, int64_t k,
                double alpha, double beta) {
  if (k == 0)
    return scale_rows(c, c_stride, m, n, static_cast<float>(beta));  // oneDNN rejects empty operands
  use_one_openmp_thread();
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, static_cast<float>(alpha),
                 a.data, a.stride, b.data, b.stride, static_cast<float>(beta), c, c_stride);
  check(status == dnnl_success, "oneDNN could not multiply matrices [{}, {}] x [{}, {}] (status {})", m, k, k,
        n, static_cast<int>(status));
}

void gemm_block(double* c, int64_t c_stride, Matrix<double> a, Matrix<double> b, int64_t m, int64_t n,
                int64_t k, double alpha, double beta) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using View = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;
  using ConstView = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;
  View out(c, m, n, Eigen::OuterStride<>(c_stride));
  const ConstView left(a.data, a.transposed ? k : m, a.transposed ? m : k, Eigen::OuterStride<>(a.stride));
  const ConstView right(b.data, b.transposed ? n : k, b.transposed ? k : n, Eigen::OuterStride<>(b.stride));
  if (beta == 0) {
    out.setZero();
  } else if (beta != 1) {
    out *= beta;
  }
  if (a.transposed && b.transposed) {
    out.noalias() += alpha * left.transpose() * right.transpose();
  } else if (a.transposed) {
    out.noalias() += alpha * left.transpose() * right;
  } else if (b.transposed) {
    out.noalias() += alpha * left * right.transpose();
  } else {
    out.noalias() += alpha * left * right;
  }
}

template <class C, class T>
void gemm_alone(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta) {
  if constexpr (std::is_same_v<T, Accumulate<T>>) {
    gemm_block(c, c_stride, a, b, m, n, k, alpha, beta);
  } else {
    if (!gemm_block_native(c, c_stride, a, b, m, n, k, alpha, beta))
      gemm_block_widened(kernels, c, c_stride, a, b, m, n, k, alpha, beta);
  }
}

template <class C, class T>
void gemm_tiled(ThreadPool& pool, const StorageKernels<T>& kernels, C* c, Matrix<T> a, Matrix<T> b, int64_t m,
                int64_t n, int64_t k, double alpha, double beta) {
  if (m == 0 || n == 0) return;
  const Tiling tile = tiling_for(m, n, k);
  const int64_t count = parts(m, tile.rows) * parts(n, tile.columns);
  pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    over_tiles(tile, m, n, begin, end, joins_tiles(b),
               [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
                 Matrix<T> rows_of_a = a;
                 Matrix<T> columns_of_b = b;
                 rows_of_a.data += a.transposed ? row : row * a.stride;
                 columns_of_b.data += b.transposed ? column * b.stride : column;
                 gemm_alone(kernels, c + row * n + column, n, rows_of_a, columns_of_b, rows, columns, k,
                            alpha, beta);
               });
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types
#define TRIFOLD_GEMM(C, T)                                                                                 \
  template void gemm_alone<C, T>(const StorageKernels<T>&, C*, int64_t, Matrix<T>, Matrix<T>, int64_t,     \
                                 int64_t, int64_t, double, double);                                        \
  template void gemm_tiled<C, T>(ThreadPool&, const StorageKernels<T>&, C*, Matrix<T>, Matrix<T>, int64_t, \
                                 int64_t, int64_t, double, double);
TRIFOLD_GEMM(float, float)
TRIFOLD_GEMM(double, double)
TRIFOLD_GEMM(Bfloat16, Bfloat16)
TRIFOLD_GEMM(float, Bfloat16)
TRIFOLD_GEMM(Float16, Float16)
TRIFOLD_GEMM(float, Float16)
#undef TRIFOLD_GEMM
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trifold::cpu
