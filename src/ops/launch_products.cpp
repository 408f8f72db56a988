// Launchers of matrix products.
#include "ops/gemm.h"
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void gemm(const KernelTable& table, Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b,
          bool transpose_b, double alpha, double beta) {
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  dispatch_float(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto product = [&](auto* out) {
      stream.run([pool = &stream.pool(), kernels = &storage_kernels<T>(table), out,
                  left = Matrix<T>{a.as<T>(), a.last_dim(), transpose_a},
                  right = Matrix<T>{b.as<T>(), b.last_dim(), transpose_b}, m, n, k, alpha,
                  beta] { gemm_tiled(*pool, *kernels, out, left, right, m, n, k, alpha, beta); });
    };
    if (c.dtype == a.dtype)  // NOLINT(bugprone-branch-clone): the types differ
      product(c.as<T>());
    else
      product(c.as<Accumulate<T>>());
  });
}

namespace {

// Transposes w [n, k], strips of whole vectors at a time. oneDNN's product is 5 to 20 % faster if its second
// factor is not transposed, and otherwise each tile would transpose its part of the factor again.
template <class T>
void transpose(ThreadPool& pool, T* out, const T* w, int64_t n, int64_t k) {
  constexpr int64_t kStrip = 16;
  pool.parallel_for(k, kStrip, [=](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < n; first += kStrip) {
      const int64_t last = std::min(n, first + kStrip);
      for (int64_t c = begin; c < end; ++c)
        for (int64_t r = first; r < last; ++r) out[c * n + r] = w[r * k + c];
    }
  });
}

// Whether a product of [m, k] and the transpose of [n, k] is worth it: for weights that many rows use and
// that fit a cache.
bool worth_transposing(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kFewRows = 128, kMostNumbers = int64_t{1} << 20;
  return m >= kFewRows && n > 1 && n * k <= kMostNumbers;
}

// The second part of `linear`, as a separate pass.
void bias_of_rows(const KernelTable& table, Stream& stream, Tensor y, Tensor bias, bool relu) {
  const int64_t columns = y.last_dim();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, y.row_count(), row_grain(columns, kCheapGrain),
                  [=, out = y.as<T>(), shift = bias.as<T>(), kernel = storage_kernels<T>(table).bias_relu](
                      int64_t begin, int64_t end) {
                    kernel(out + begin * columns, columns, shift, end - begin, columns, relu);
                  });
  });
}

}  // namespace

// Applies bias and ReLU to a tile of the product while it is still in the second-level cache. 16-bit products
// have tiles of their own.
void linear(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  const int64_t m = x.row_count();
  const int64_t k = x.last_dim();
  const int64_t n = w.row_count();
  if (size_of(x.dtype) < size_of(DType::F32)) {
    gemm(table, stream, y, x, false, w, true, 1, 0);
    return bias_of_rows(table, stream, y, bias, relu);
  }
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), out = y.as<T>(), in = x.as<T>(), weights = w.as<T>(),
                shift = bias.as<T>(), kernel = storage_kernels<T>(table).bias_relu] {
      const Tiling tile = tiling_for(m, n, k);
      const int64_t across = parts(n, tile.columns);
      const bool turned = worth_transposing(m, n, k);
      T* const turned_weights = turned ? scratch<T>(n * k) : nullptr;
      if (turned) transpose(*pool, turned_weights, weights, n, k);
      pool->parallel_for(parts(m, tile.rows) * across, 1, [=](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t i = t / across * tile.rows;
          const int64_t j = t % across * tile.columns;
          const int64_t rows = std::min(tile.rows, m - i);
          const int64_t columns = std::min(tile.columns, n - j);
          T* c = out + i * n + j;
          const Matrix<T> second =
              turned ? Matrix<T>{turned_weights + j, n, false} : Matrix<T>{weights + j * k, k, true};
          gemm_block(c, n, Matrix<T>{in + i * k, k, false}, second, rows, columns, k, 1, 0);
          kernel(c, n, shift + j, rows, columns, relu);
        }
      });
    });
  });
}

void add_products(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::gemm, gemm>(ops, table);
  bind<&OpTable::linear, linear>(ops, table);
}

}  // namespace trifold::cpu
