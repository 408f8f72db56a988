// Launchers of the dense parts of recommender models: ReLU, interaction, cross layers, losses, copies.
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// sums[c] += the sum over chunks of chunk_sums[chunk][c], added up in f64.
template <class T>
void add_chunks(T* sums, const T* chunk_sums, int64_t chunks, int64_t columns) {
  constexpr int64_t kStrip = 64;
  for (int64_t first = 0; first < columns; first += kStrip) {
    const int64_t width = std::min(kStrip, columns - first);
    double totals[kStrip] = {};
    for (int64_t k = 0; k < chunks; ++k)
      for (int64_t c = 0; c < width; ++c)
        totals[c] += static_cast<double>(chunk_sums[k * columns + first + c]);
    for (int64_t c = 0; c < width; ++c) sums[first + c] += static_cast<T>(totals[c]);
  }
}

}  // namespace

// A chunk of rows has its own sums, so workers take rows, and the order of the sums does not depend on how many workers
// there are: in the type of the sums within a chunk, in f64 over the chunks, as in kernels/columns.h.
void relu_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor db, Tensor dy, Tensor y,
                   bool accumulate) {
  const int64_t rows = y.row_count();
  const int64_t columns = y.last_dim();
  const int64_t grain = parts(row_grain(columns, kCheapGrain), kRowChunk) * kRowChunk;
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), to = dx.as<T>(), sums = db.as<Accumulate<T>>(), from = dy.as<T>(),
                saved = y.as<T>(), kernel = storage_kernels<T>(table).relu_backward] {
      const int64_t chunks = parts(rows, kRowChunk);
      auto* const chunk_sums = scratch<Accumulate<T>>(chunks * columns);
      pool->parallel_for(rows, grain, [=](int64_t begin, int64_t end) {
        const int64_t at = begin * columns;
        kernel(to + at, chunk_sums + begin / kRowChunk * columns, from + at, saved + at, end - begin,
               columns);
      });
      if (!accumulate) set_to_zero(0, columns, sums);
      add_chunks(sums, chunk_sums, chunks, columns);
    });
  });
}

void dot_interaction(const KernelTable& table, Stream& stream, Tensor y, Tensor x, int64_t width, bool self) {
  const int64_t vectors = x.last_dim() / width;
  const int64_t rows = x.row_count();
  const int64_t out_width = rows == 0 ? 0 : y.elements() / rows;
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, rows, row_grain(vectors * vectors * width, kCheapGrain * 16),
                  [=, out = y.as<T>(), in = x.as<T>(),
                   kernel = recommender_kernels<T>(table).dot_interaction](int64_t begin, int64_t end) {
                    kernel(out + begin * out_width, in + begin * vectors * width, end - begin, vectors, width,
                           self, scratch<T>(interaction_scratch(vectors, width)));
                  });
  });
}

void dot_interaction_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x,
                              int64_t width, bool self) {
  const int64_t vectors = x.last_dim() / width;
  const int64_t rows = x.row_count();
  const int64_t out_width = rows == 0 ? 0 : dy.elements() / rows;
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(
        stream, rows, row_grain(vectors * vectors * width, kCheapGrain * 16),
        [=, to = dx.as<T>(), grad = dy.as<T>(), in = x.as<T>(),
         kernel = recommender_kernels<T>(table).dot_interaction_backward](int64_t begin, int64_t end) {
          kernel(to + begin * vectors * width, grad + begin * out_width, in + begin * vectors * width,
                 end - begin, vectors, width, self, scratch<T>(interaction_scratch(vectors, width)));
        });
  });
}

void cross(const KernelTable& table, Stream& stream, Tensor y, Tensor x0, Tensor u, Tensor x) {
  const int64_t n = y.elements();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, n, kCheapGrain,
                  [=, out = y.as<T>(), start = x0.as<T>(), part = u.as<T>(), in = x.as<T>(),
                   kernel = storage_kernels<T>(table).cross](int64_t begin, int64_t end) {
                    kernel(out + begin, start + begin, part + begin, in + begin, end - begin);
                  });
  });
}

void cross_backward(const KernelTable& table, Stream& stream, Tensor du, Tensor dx0, Tensor dy, Tensor x0,
                    Tensor u) {
  const int64_t n = dy.elements();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(
        stream, n, kCheapGrain,
        [=, to = du.as<T>(), sum = dx0.as<T>(), grad = dy.as<T>(), start = x0.as<T>(), part = u.as<T>(),
         kernel = storage_kernels<T>(table).cross_backward](int64_t begin, int64_t end) {
          kernel(to + begin, sum + begin, grad + begin, start + begin, part + begin, end - begin);
        });
  });
}

void sigmoid(const KernelTable& table, Stream& stream, Tensor p, Tensor z) {
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, p.elements(), kMathGrain,
                  [=, out = p.as<T>(), in = z.as<T>(), kernel = recommender_kernels<T>(table).sigmoid](
                      int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin); });
  });
}

void click_loss(const KernelTable& table, Stream& stream, Tensor loss, Tensor z, Tensor labels,
                ClickLoss kind) {
  const int64_t n = loss.elements();
  dispatch_wide_float(loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, n, kMathGrain,
                  [=, out = loss.as<T>(), in = z.as<T>(), label = labels.as<float>(),
                   kernel = recommender_kernels<T>(table).click_loss](int64_t begin, int64_t end) {
                    kernel(out + begin, in + begin, label + begin, end - begin, kind == ClickLoss::Squared);
                  });
  });
}

void click_loss_backward(const KernelTable& table, Stream& stream, Tensor dz, Tensor z, Tensor labels,
                         Tensor weight, const Factor& scale, ClickLoss kind) {
  const int64_t n = dz.elements();
  const LateFactor factor = late("click_loss_backward", scale);
  dispatch_wide_float(dz.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(
        stream, n, kMathGrain,
        [=, out = dz.as<T>(), in = z.as<T>(), label = labels.as<float>(), weights = weight.as<float>(),
         kernel = recommender_kernels<T>(table).click_loss_backward](int64_t begin, int64_t end) {
          kernel(out + begin, in + begin, label + begin, weights + begin, factor.now(), end - begin,
                 kind == ClickLoss::Squared);
        });
  });
}

void copy_columns(const KernelTable&, Stream& stream, Tensor y, Tensor x,
                  std::span<const ColumnCopy> copies) {
  const int64_t rows = x.row_count();
  const int64_t from_width = x.last_dim();
  const int64_t to_width = y.last_dim();
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, rows, row_grain(to_width, kCheapGrain),
                  [=, out = y.as<T>(), in = x.as<T>()](int64_t begin, int64_t end) {
                    for (int64_t r = begin; r < end; ++r)
                      for (const ColumnCopy& copy : copies) {
                        T* to = out + r * to_width + copy.to;
                        const T* from = in + r * from_width + copy.from;
                        const T factor = copy.row_scale.data == nullptr ? T(1) : copy.row_scale.as<T>()[r];
                        for (int64_t c = 0; c < copy.width; ++c) {
                          const T value = factor * from[c];
                          to[c] = copy.add ? to[c] + value : value;
                        }
                      }
                  });
  });
}

void copy_rows(const KernelTable&, Stream& stream, Tensor y, Tensor to, Tensor x, Tensor from) {
  const int64_t width = x.last_dim();
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, from.elements(), row_grain(width, kCheapGrain),
                  [=, out = y.as<T>(), rows = to.as<int32_t>(), in = x.as<T>(), sources = from.as<int32_t>()](
                      int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i)
                      std::copy_n(in + sources[i] * width, width, out + rows[i] * width);
                  });
  });
}

void inverse_root(const KernelTable& table, Stream& stream, Tensor y, Tensor x, double eps) {
  const int64_t n = y.elements();
  dispatch_wide_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, n, kMathGrain,
                  [=, out = y.as<T>(), in = x.as<T>(), kernel = recommender_kernels<T>(table).inverse_root](
                      int64_t begin, int64_t end) { kernel(out + begin, in + begin, eps, end - begin); });
  });
}

void add_recommender(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::relu_backward, relu_backward>(ops, table);
  bind<&OpTable::dot_interaction, dot_interaction>(ops, table);
  bind<&OpTable::dot_interaction_backward, dot_interaction_backward>(ops, table);
  bind<&OpTable::cross, cross>(ops, table);
  bind<&OpTable::cross_backward, cross_backward>(ops, table);
  bind<&OpTable::sigmoid, sigmoid>(ops, table);
  bind<&OpTable::click_loss, click_loss>(ops, table);
  bind<&OpTable::click_loss_backward, click_loss_backward>(ops, table);
  bind<&OpTable::copy_columns, copy_columns>(ops, table);
  bind<&OpTable::copy_rows, copy_rows>(ops, table);
  bind<&OpTable::inverse_root, inverse_root>(ops, table);
}

}  // namespace trifold::cpu
