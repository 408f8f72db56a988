// Launchers of a mixture of experts: the router, gates of rows, and products of rows with the weights of their experts.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ops/gemm.h"
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void route(const KernelTable& table, Stream& stream, Tensor gates, Tensor chosen, Tensor logits, Tensor bias,
           const Router& router) {
  const int64_t experts = logits.last_dim();
  dispatch_wide_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(
        stream, logits.row_count(), experts * router.choices, kMathGrain,
        [=, weights = gates.as<T>(), to = chosen.as<int32_t>(), from = logits.as<T>(),
         shift = bias.data == nullptr ? nullptr : bias.as<T>(), kernel = kernels<T>(table).route](
            int64_t begin, int64_t end) { kernel(weights, to, from, shift, experts, router, begin, end); });
  });
}

void router_losses(const KernelTable& table, Stream& stream, Tensor balance, Tensor z, Tensor counts,
                   Tensor logits, Tensor padding, int64_t seq, const Router& router) {
  const int64_t experts = logits.last_dim();
  dispatch_wide_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, logits.row_count() / seq, 1,
                  [=, even = balance.as<T>(), size = z.as<T>(), counted = counts.as<int32_t>(),
                   from = logits.as<T>(), padded = padding.data == nullptr ? nullptr : padding.as<int32_t>(),
                   kernel = kernels<T>(table).router_losses](int64_t begin, int64_t end) {
                    kernel(even, size, counted, from, padded, experts, seq, router, begin, end);
                  });
  });
}

void route_backward(const KernelTable& table, Stream& stream, Tensor dlogits, Tensor dgates, Tensor gates,
                    Tensor chosen, Tensor logits, Tensor counts, Tensor weight, const Factor& loss,
                    const RouterLosses& losses, const Router& router) {
  const int64_t experts = logits.last_dim();
  const int64_t tokens = logits.row_count();
  const LateFactor factor = late("route_backward", loss);
  dispatch_float(dlogits.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    const RouterGradient<T> in{dgates.as<Wide>(),
                               gates.as<Wide>(),
                               chosen.as<int32_t>(),
                               logits.as<Wide>(),
                               counts.as<int32_t>(),
                               weight.as<float>(),
                               factor,
                               losses,
                               router,
                               experts,
                               tokens * experts / std::max<int64_t>(1, counts.elements())};
    over_rows(stream, tokens, experts, kMathGrain,
              [=, out = dlogits.as<T>(), kernel = storage_kernels<T>(table).route_backward](
                  int64_t begin, int64_t end) { kernel(out, in, begin, end); });
  });
}

void gate_rows(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor gates, Tensor row) {
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, x.row_count(), columns, kCheapGrain,
              [=, out = y.as<T>(), in = x.as<T>(), gate = gates.as<Accumulate<T>>(), rows = row.as<int32_t>(),
               kernel = storage_kernels<T>(table).gate_rows](int64_t begin, int64_t end) {
                kernel(out, in, gate, rows, columns, begin, end);
              });
  });
}

void gate_rows_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dgates, Tensor dy,
                        Tensor x, Tensor gates, Tensor row) {
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    over_rows(stream, x.row_count(), columns, kCheapGrain,
              [=, out = dx.as<T>(), slope = dgates.as<Wide>(), grad = dy.as<T>(), in = x.as<T>(),
               gate = gates.as<Wide>(), rows = row.as<int32_t>(),
               kernel = storage_kernels<T>(table).gate_rows_backward](int64_t begin, int64_t end) {
                kernel(out, slope, grad, in, gate, rows, columns, begin, end);
              });
  });
}

void sum_choices(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor row, bool accumulate) {
  const int64_t columns = x.last_dim();
  const int64_t choices = row.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, row.dim(0), columns * choices, kCheapGrain,
              [=, out = y.as<T>(), in = x.as<T>(), rows = row.as<int32_t>(),
               kernel = storage_kernels<T>(table).sum_choices](int64_t begin, int64_t end) {
                kernel(out, in, rows, choices, columns, accumulate, begin, end);
              });
  });
}

namespace {

// Rows of every product, padded with zeros, so that a library never chooses its algorithm by the number of tokens of an
// expert.
constexpr int64_t kBlockRows = 64;
constexpr int64_t kDeepRows = 256;  // rows that are summed at a time, if there are that many

// A worker multiplies the rows of a part block after block with one copy of some columns of their expert's weights. In
// its order and width the library reaches 0.95 of its speed for whole matrices (Zen 4, f32, blocks of 64 rows); with
// weights that it has to transpose for every block, 0.65 to 0.8.
constexpr int64_t kPartBlocks = 8;  // at most
constexpr int64_t kCopiedColumns = 192;
constexpr int64_t kTransposed = 16;  // rows and columns that are transposed at a time

struct RowPart {
  int64_t expert, begin, end;
};

// Divides pieces of work of different costs among workers. Every worker is asked about all pieces in the same order,
// and takes the pieces whose middle lies in its part of the total cost.
class Share {
 public:
  Share(int worker, int workers, int64_t whole) : worker_(worker), workers_(workers), whole_(whole) {}
  bool has(int64_t cost) {
    const int64_t middle = 2 * before_ + cost;
    before_ += cost;
    return middle * workers_ / (2 * whole_) == worker_;
  }

 private:
  int64_t worker_, workers_, whole_;
  int64_t before_ = 0;
};

// Calls body(part, column) for every part of the rows and every strip of `width` of n columns. An expert's parts are as
// even as whole blocks allow. Experts differ in rows, so workers divide the columns first: a worker has the same
// columns of all experts.
template <class Body>
void over_parts(ThreadPool& pool, const int32_t* first, int64_t experts, int64_t n, int64_t width,
                Body body) {
  const int64_t rows = first[experts] - first[0];
  if (rows == 0) return;
  pool.run([&](int worker) {
    Share share(worker, pool.size(), rows * parts(n, width));
    for (int64_t column = 0; column < n; column += width)
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t blocks = parts(first[e + 1] - first[e], kBlockRows);
        if (blocks == 0) continue;
        const int64_t each = parts(blocks, parts(blocks, kPartBlocks)) * kBlockRows;
        for (int64_t begin = first[e]; begin < first[e + 1]; begin += each) {
          const int64_t end = std::min<int64_t>(begin + each, first[e + 1]);
          if (share.has(end - begin)) body(RowPart{e, begin, end}, column);
        }
      }
  });
}

// Calls body(expert, row, column) for every tile of the gradients [m, n] of the experts' weights.
template <class Body>
void over_gradients(ThreadPool& pool, const int32_t* first, int64_t experts, int64_t m, int64_t n,
                    const Tiling& tile, Body body) {
  constexpr int64_t kWriting = 32;  // a tile costs as much as so many rows
  const int64_t rows = first[experts] - first[0] + experts * kWriting;
  pool.run([&](int worker) {
    Share share(worker, pool.size(), rows * parts(m, tile.rows) * parts(n, tile.columns));
    for (int64_t row = 0; row < m; row += tile.rows)
      for (int64_t column = 0; column < n; column += tile.columns)
        for (int64_t e = 0; e < experts; ++e)
          if (share.has(first[e + 1] - first[e] + kWriting)) body(e, row, column);
  });
}

// Columns of a copy: whole vectors, and as many in each.
int64_t copied_columns(int64_t n) {
  constexpr int64_t kVector = 16;
  return parts(parts(n, parts(n, kCopiedColumns)), kVector) * kVector;
}

// A worker's memory, separate from that of `scratch`, which products use.
template <class T, int Which>
T* padding(int64_t count) {
  static thread_local std::vector<T> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

// Copies rows [0, rows) of `columns` elements and appends zeros up to kBlockRows rows.
template <class T>
void fill_block(T* to, const T* from, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * stride, columns, to + r * columns);
  std::fill_n(to + rows * columns, (kBlockRows - rows) * columns, T(0.0F));
}

// The unsigned integer of the same size: transposing only moves bits.
template <size_t Bytes>
using BitsOf = std::conditional_t<Bytes == 8, uint64_t, std::conditional_t<Bytes == 4, uint32_t, uint16_t>>;

// to[4, 4] = from[4, 4] transposed.
template <class T>
void transpose_four(T* to, int64_t to_stride, const T* from, int64_t from_stride) {
  using Four [[gnu::vector_size(4 * sizeof(T))]] = BitsOf<sizeof(T)>;
  Four row[4];
  for (int64_t i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * from_stride, sizeof(Four));
  const Four low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Four high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four next_low = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four next_high = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  row[0] = __builtin_shufflevector(low, next_low, 0, 1, 4, 5);
  row[1] = __builtin_shufflevector(low, next_low, 2, 3, 6, 7);
  row[2] = __builtin_shufflevector(high, next_high, 0, 1, 4, 5);
  row[3] = __builtin_shufflevector(high, next_high, 2, 3, 6, 7);
  for (int64_t i = 0; i < 4; ++i) std::memcpy(static_cast<void*>(to + i * to_stride), &row[i], sizeof(Four));
}

// to [rows, columns] = the transpose of from [columns, rows].
template <class T>
void transpose_square(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t rows,
                      int64_t columns) {
  if (rows == kTransposed && columns == kTransposed) {
    for (int64_t b = 0; b < columns; b += 4)
      for (int64_t a = 0; a < rows; a += 4)
        transpose_four(to + a * to_stride + b, to_stride, from + b * from_stride + a, from_stride);
    return;
  }
  for (int64_t a = 0; a < rows; ++a)
    for (int64_t b = 0; b < columns; ++b) to[a * to_stride + b] = from[b * from_stride + a];
}

// to [k, width] = columns [column, column + width) of w [k, n], or of its transpose if w is [n, k]. Weights come from
// memory, in an order that the processor does not foresee, so they are asked for ahead.
template <class T>
void copy_weights(T* to, const T* w, int64_t n, int64_t k, bool transposed, int64_t column, int64_t width) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T)),
                    kAhead = 256 / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kRowsAhead = 8;
  if (!transposed) {
    for (int64_t r = 0; r < k; ++r) {
      for (int64_t i = 0; i < width; i += kLine) __builtin_prefetch(w + (r + kRowsAhead) * n + column + i);
      std::copy_n(w + r * n + column, width, to + r * width);
    }
    return;
  }
  for (int64_t j = 0; j < width; j += kTransposed)
    for (int64_t r = 0; r < k; r += kTransposed) {
      const int64_t columns = std::min(kTransposed, width - j);
      const T* from = w + (column + j) * k + r;
      for (int64_t b = 0; b < columns; ++b) __builtin_prefetch(from + b * k + kAhead);
      transpose_square(to + r * width + j, width, from, k, std::min(kTransposed, k - r), columns);
    }
}

// Columns [column, column + width) of y [R, n] for the rows of one part; x [R, k].
template <class T>
void part_product(const StorageKernels<T>& kernels, T* y, const T* x, const T* w, const RowPart& part,
                  int64_t n, int64_t k, bool transposed, int64_t column, int64_t width) {
  T* copy = padding<T, 2>(k * width);
  copy_weights(copy, w + part.expert * n * k, n, k, transposed, column, width);
  const Matrix<T> weights{copy, width, false};
  for (int64_t begin = part.begin; begin < part.end; begin += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, part.end - begin);
    const T* in = x + begin * k;
    T* out = y + begin * n + column;
    if (rows == kBlockRows) {
      gemm_alone(kernels, out, n, Matrix<T>{in, k, false}, weights, kBlockRows, width, k, 1, 0);
      continue;
    }
    T* padded = padding<T, 0>(kBlockRows * k);
    T* result = padding<T, 1>(kBlockRows * n);  // with the stride of y, which may affect bits
    fill_block(padded, in, k, rows, k);
    gemm_alone(kernels, result, n, Matrix<T>{padded, k, false}, weights, kBlockRows, width, k, 1, 0);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(result + r * n, width, out + r * n);
  }
}

// A tile of the gradient of one expert's weights, from its `rows` rows. The last rows are padded with zeros,
// so that products of only a few shapes are prepared.
template <class T>
void tile_gradient(const StorageKernels<T>& kernels, Accumulate<T>* dw, int64_t stride, const T* dy,
                   int64_t dy_stride, const T* x, int64_t rows, int64_t m, int64_t n, bool accumulate) {
  const auto add = [&](const T* left, int64_t left_stride, const T* right, int64_t right_stride,
                       int64_t depth) {
    gemm_alone(kernels, dw, stride, Matrix<T>{left, left_stride, true}, Matrix<T>{right, right_stride, false},
               m, n, depth, 1, accumulate ? 1 : 0);
    accumulate = true;
  };
  int64_t r = 0;
  while (rows - r >= kBlockRows) {
    const int64_t depth = rows - r >= kDeepRows ? kDeepRows : kBlockRows;
    add(dy + r * dy_stride, dy_stride, x + r * stride, stride, depth);
    r += depth;
  }
  if (r < rows) {
    T* left = padding<T, 0>(kBlockRows * m);
    T* right = padding<T, 1>(kBlockRows * n);
    fill_block(left, dy + r * dy_stride, dy_stride, rows - r, m);
    fill_block(right, x + r * stride, stride, rows - r, n);
    add(left, m, right, n, kBlockRows);
  }
  if (accumulate) return;
  for (int64_t i = 0; i < m; ++i) std::fill_n(dw + i * stride, n, Accumulate<T>(0));  // it has no tokens
}

}  // namespace

void expert_product(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor first,
                    bool transposed) {
  const int64_t n = y.last_dim();
  const int64_t k = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), kernels = &storage_kernels<T>(table), out = y.as<T>(),
                in = x.as<T>(), weights = w.as<T>(), begins = first.as<int32_t>(), experts = w.dim(0)] {
      const int64_t width = copied_columns(n);
      over_parts(*pool, begins, experts, n, width, [&](const RowPart& part, int64_t column) {
        part_product(*kernels, out, in, weights, part, n, k, transposed, column, std::min(width, n - column));
      });
    });
  });
}

void expert_product_weight(const KernelTable& table, Stream& stream, Tensor dw, Tensor dy, Tensor x,
                           Tensor first, bool accumulate) {
  const int64_t m = dw.dim(1);
  const int64_t n = dw.dim(2);
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), kernels = &storage_kernels<T>(table), sums = dw.as<Accumulate<T>>(),
                grad = dy.as<T>(), in = x.as<T>(), begins = first.as<int32_t>(), experts = dw.dim(0)] {
      const Tiling tile = tiling_for(m, n, kDeepRows);
      over_gradients(*pool, begins, experts, m, n, tile, [&](int64_t expert, int64_t i, int64_t j) {
        const int64_t row = begins[expert];
        tile_gradient(*kernels, sums + (expert * m + i) * n + j, n, grad + row * m + i, m, in + row * n + j,
                      begins[expert + 1] - row, std::min(tile.rows, m - i), std::min(tile.columns, n - j),
                      accumulate);
      });
    });
  });
}

void add_experts(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::route, route>(ops, table);
  bind<&OpTable::router_losses, router_losses>(ops, table);
  bind<&OpTable::route_backward, route_backward>(ops, table);
  bind<&OpTable::gate_rows, gate_rows>(ops, table);
  bind<&OpTable::gate_rows_backward, gate_rows_backward>(ops, table);
  bind<&OpTable::sum_choices, sum_choices>(ops, table);
  bind<&OpTable::expert_product, expert_product>(ops, table);
  bind<&OpTable::expert_product_weight, expert_product_weight>(ops, table);
}

}  // namespace trifold::cpu
