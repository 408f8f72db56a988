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

// oneDNN's product is 5 to 20 % faster if its second factor is not transposed, and otherwise each tile would transpose
// its part of the factor again.
template <class T>
void transpose(ThreadPool& pool, const RecommenderKernels<T>& kernels, T* out, const T* w, int64_t n,
               int64_t k) {
  constexpr int64_t kStrip = 16;  // whole vectors
  pool.parallel_for(k, kStrip, [=, kernel = kernels.transpose](int64_t begin, int64_t end) {
    kernel(out, w, n, k, begin, end);
  });
}

// Whether a product of [m, k] and the transpose of [n, k] is worth it: for weights that many rows use and
// that fit a cache.
bool worth_transposing(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLeastRows = 128, kMostNumbers = int64_t{1} << 20;
  return m >= kLeastRows && n > 1 && n * k <= kMostNumbers;
}

// A tile that leaves room in a second-level cache, for another pass over it.
Tiling tile_in_cache(int64_t m, int64_t n, int64_t k, size_t size) {
  constexpr int64_t kMostBytes = int64_t{512} << 10;
  Tiling tile = tiling_for(m, n, k);
  while (tile.rows * tile.columns * static_cast<int64_t>(size) > kMostBytes && tile.rows % 2 == 0)
    tile.rows /= 2;
  return tile;
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
                shift = bias.as<T>(), kernels = &recommender_kernels<T>(table),
                kernel = storage_kernels<T>(table).bias_relu] {
      const Tiling tile = tile_in_cache(m, n, k, sizeof(T));
      const int64_t count = parts(m, tile.rows) * parts(n, tile.columns);
      const bool turned = worth_transposing(m, n, k);
      T* const turned_weights = turned ? scratch<T>(n * k) : nullptr;
      if (turned) transpose(*pool, *kernels, turned_weights, weights, n, k);
      const Matrix<T> second = turned ? Matrix<T>{turned_weights, n, false} : Matrix<T>{weights, k, true};
      pool->parallel_for(count, 1, [=](int64_t begin, int64_t end) {
        over_tiles(
            tile, m, n, begin, end, joins_tiles(second),
            [=](int64_t row, int64_t column, int64_t rows, int64_t columns) {
              T* c = out + row * n + column;
              Matrix<T> columns_of_second = second;
              columns_of_second.data += turned ? column : column * k;
              gemm_block(c, n, Matrix<T>{in + row * k, k, false}, columns_of_second, rows, columns, k, 1, 0);
              kernel(c, n, shift + column, rows, columns, relu);
            });
      });
    });
  });
}

namespace {

// Matrix `number` of an operand, counted along the inner axis first; null if the operand is empty and has no memory.
template <class T>
T* matrix_at(T* data, const MatrixBatch& batch, int64_t inner, int64_t number) {
  if (data == nullptr) return data;
  return data + batch.begin + number / inner * batch.outer + number % inner * batch.inner;
}

// From this many products on, a worker computes whole ones; fewer are cut into tiles. The choice does not depend on the
// number of workers, because tiles may decide the order of sums.
constexpr int64_t kManyProducts = 16;

template <class C, class T>
void products_over(ThreadPool& pool, const StorageKernels<T>& kernels, C* c, const T* a, const T* b,
                   const BatchedProduct& batch) {
  const int64_t count = batch.outer * batch.inner;
  if (count == 0 || batch.m == 0 || batch.n == 0) return;
  const Tiling tile =
      count >= kManyProducts ? Tiling{batch.m, batch.n} : tiling_for(batch.m, batch.n, batch.k);
  const int64_t tiles = parts(batch.m, tile.rows) * parts(batch.n, tile.columns);
  constexpr int64_t kLeastProducts = int64_t{1} << 17;  // multiplications that are worth waking a worker
  const int64_t grain = row_grain(tile.rows * tile.columns * batch.k, kLeastProducts);
  pool.parallel_for(count * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = i / tiles;
      const Matrix<T> left{matrix_at(a, batch.a, batch.inner, number), batch.a.row, batch.a.transposed};
      const Matrix<T> right{matrix_at(b, batch.b, batch.inner, number), batch.b.row, batch.b.transposed};
      C* const out = matrix_at(c, batch.c, batch.inner, number);
      over_tiles(tile, batch.m, batch.n, i % tiles, i % tiles + 1, false,
                 [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
                   Matrix<T> rows_of_a = left;
                   Matrix<T> columns_of_b = right;
                   if (batch.k > 0) {
                     rows_of_a.data += left.transposed ? row : row * left.stride;
                     columns_of_b.data += right.transposed ? column * right.stride : column;
                   }
                   gemm_alone(kernels, out + row * batch.c.row + column, batch.c.row, rows_of_a, columns_of_b,
                              rows, columns, batch.k, batch.alpha, batch.beta);
                 });
    }
  });
}

}  // namespace

void batched_product(const KernelTable& table, Stream& stream, Tensor c, Tensor a, Tensor b,
                     const BatchedProduct& product) {
  // The rows of a matrix with a single row may be any distance apart, which libraries do not accept.
  BatchedProduct safe = product;
  const auto widen = [](MatrixBatch& batch, int64_t rows, int64_t columns) {
    batch.row = std::max({batch.row, batch.transposed ? rows : columns, int64_t{1}});
  };
  widen(safe.a, product.m, product.k);
  widen(safe.b, product.k, product.n);
  widen(safe.c, product.m, product.n);
  dispatch_float(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto* out) {
      stream.run([safe, out, pool = &stream.pool(), kernels = &storage_kernels<T>(table), left = a.as<T>(),
                  right = b.as<T>()] { products_over(*pool, *kernels, out, left, right, safe); });
    };
    if (c.dtype == a.dtype)  // NOLINT(bugprone-branch-clone): the types differ
      run(c.as<T>());
    else
      run(c.as<Accumulate<T>>());
  });
}

void add_products(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::gemm, gemm>(ops, table);
  bind<&OpTable::linear, linear>(ops, table);
  bind<&OpTable::batched_product, batched_product>(ops, table);
}

}  // namespace trifold::cpu
