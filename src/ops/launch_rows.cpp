// Launchers of layer norm, column sums, table rows and cross entropy.
#include <numeric>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void layer_norm(const KernelTable& table, Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                Tensor gain, Tensor bias, double eps, double gain_offset) {
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    auto *center = mean.as<Accumulate<T>>(), *inverse = rstd.as<Accumulate<T>>();
    const T *in = x.as<T>(), *gains = gain.as<T>(), *biases = bias.as<T>();
    const auto kernel = storage_kernels<T>(table).layer_norm;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, center + begin, inverse + begin, in + begin * columns, gains, biases,
             end - begin, columns, eps, gain_offset);
    });
  });
}

void layer_norm_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x,
                         Tensor mean, Tensor rstd, Tensor gain, double gain_offset) {
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T *grad = dy.as<T>(), *in = x.as<T>(), *gains = gain.as<T>();
    const auto *center = mean.as<Accumulate<T>>(), *inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).layer_norm_backward;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, grad + begin * columns, in + begin * columns, center + begin,
             inverse + begin, gains, end - begin, columns, gain_offset);
    });
  });
}

void layer_norm_backward_weight(const KernelTable& table, Stream& stream, Tensor dgain, Tensor dbias,
                                Tensor dy, Tensor x, Tensor mean, Tensor rstd, bool accumulate) {
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto *gains = dgain.as<Accumulate<T>>(), *biases = dbias.as<Accumulate<T>>();
    const T *grad = dy.as<T>(), *in = x.as<T>();
    const auto *center = mean.as<Accumulate<T>>(), *inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).layer_norm_backward_weight;
    over_columns(stream, rows, columns, [=](int64_t begin, int64_t end) {
      if (!accumulate) set_to_zero(begin, end, gains, biases);
      kernel(gains, biases, grad, in, center, inverse, rows, columns, begin, end);
    });
  });
}

void column_sum(const KernelTable& table, Stream& stream, Tensor db, Tensor dy, bool accumulate) {
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* out = db.as<Accumulate<T>>();
    const T* grad = dy.as<T>();
    const auto kernel = storage_kernels<T>(table).column_sum;
    over_columns(stream, rows, columns, [=](int64_t begin, int64_t end) {
      if (!accumulate) set_to_zero(begin, end, out);
      kernel(out, grad, rows, columns, begin, end);
    });
  });
}

void embedding(const KernelTable& table, Stream& stream, Tensor y, Tensor rows, Tensor ids, int64_t first_id,
               bool accumulate) {
  const int64_t columns = y.last_dim();
  const int64_t held = rows.rank() == 0 ? 0 : rows.dim(0);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* in = rows.as<T>();
    const int32_t* id = ids.as<int32_t>();
    const auto kernel = storage_kernels<T>(table).embedding;
    over_rows(stream, y.row_count(), columns, kCheapGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, in, id + begin, end - begin, columns, first_id, held, accumulate);
    });
  });
}

void embedding_backward(const KernelTable& table, Stream& stream, Tensor drows, Tensor dy, Tensor ids,
                        Tensor order, int64_t first_id) {
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  const int64_t held = drows.rank() == 0 ? 0 : drows.dim(0);
  const int32_t* id = ids.as<int32_t>();
  auto* by_id = order.as<int32_t>();
  stream.run([=] {
    std::iota(by_id, by_id + rows, 0);
    std::sort(by_id, by_id + rows,
              [=](int32_t a, int32_t b) { return id[a] != id[b] ? id[a] < id[b] : a < b; });
  });
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* out = drows.as<Accumulate<T>>();
    const T* grad = dy.as<T>();
    const auto kernel = storage_kernels<T>(table).embedding_backward;
    over_columns(stream, rows, columns, [=](int64_t begin, int64_t end) {
      kernel(out, grad, id, by_id, rows, columns, begin, end, first_id, held);
    });
  });
}

void softmax_stats(const KernelTable& table, Stream& stream, Tensor max, Tensor sum, Tensor target,
                   Tensor logits, Tensor labels, int64_t first_id, int64_t vocab) {
  const int64_t rows = max.elements();
  const VocabularyPart part = vocabulary_part(logits.last_dim(), first_id, vocab);
  dispatch_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto *most = max.as<Accumulate<T>>(), *total = sum.as<Accumulate<T>>(), *hit = target.as<Accumulate<T>>();
    const T* in = logits.as<T>();
    const int32_t* label = labels.as<int32_t>();
    const auto kernel = storage_kernels<T>(table).softmax_stats;
    over_rows(stream, rows, part.columns, kMathGrain, [=](int64_t begin, int64_t end) {
      kernel(most + begin, total + begin, hit + begin, in + begin * part.columns, label + begin, end - begin,
             part);
    });
  });
}

void softmax_rescale(const KernelTable& table, Stream& stream, Tensor sum, Tensor local_max,
                     Tensor global_max) {
  const int64_t rows = sum.elements();
  dispatch_wide_float(sum.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* total = sum.as<T>();
    const T *local = local_max.as<T>(), *global = global_max.as<T>();
    const auto kernel = kernels<T>(table).softmax_rescale;
    over_rows(stream, rows, 1, kMathGrain, [=](int64_t begin, int64_t end) {
      kernel(total + begin, local + begin, global + begin, end - begin);
    });
  });
}

void cross_entropy(const KernelTable& table, Stream& stream, Tensor loss, Tensor max, Tensor sum,
                   Tensor target) {
  const int64_t rows = loss.elements();
  dispatch_wide_float(loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = loss.as<T>();
    const T *most = max.as<T>(), *total = sum.as<T>(), *hit = target.as<T>();
    const auto kernel = kernels<T>(table).cross_entropy;
    over_rows(stream, rows, 1, kMathGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin, most + begin, total + begin, hit + begin, end - begin);
    });
  });
}

void cross_entropy_backward(const KernelTable& table, Stream& stream, Tensor dlogits, Tensor logits,
                            Tensor max, Tensor sum, Tensor labels, Tensor weight, const Factor& scale,
                            int64_t first_id, int64_t vocab) {
  const int64_t rows = max.elements();
  const VocabularyPart part = vocabulary_part(logits.last_dim(), first_id, vocab);
  const LateFactor factor = late("cross_entropy_backward", scale);
  dispatch_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dlogits.as<T>();
    const T* in = logits.as<T>();
    const auto *most = max.as<Accumulate<T>>(), *total = sum.as<Accumulate<T>>();
    const int32_t* label = labels.as<int32_t>();
    const float* weights = weight.as<float>();
    const auto kernel = storage_kernels<T>(table).cross_entropy_backward;
    over_rows(stream, rows, part.columns, kMathGrain, [=](int64_t begin, int64_t end) {
      const int64_t from = begin * part.columns;
      kernel(out + from, in + from, most + begin, total + begin, label + begin, weights + begin, factor.now(),
             end - begin, part);
    });
  });
}

void add_rows(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::layer_norm, layer_norm>(ops, table);
  bind<&OpTable::layer_norm_backward, layer_norm_backward>(ops, table);
  bind<&OpTable::layer_norm_backward_weight, layer_norm_backward_weight>(ops, table);
  bind<&OpTable::column_sum, column_sum>(ops, table);
  bind<&OpTable::embedding, embedding>(ops, table);
  bind<&OpTable::embedding_backward, embedding_backward>(ops, table);
  bind<&OpTable::softmax_stats, softmax_stats>(ops, table);
  bind<&OpTable::softmax_rescale, softmax_rescale>(ops, table);
  bind<&OpTable::cross_entropy, cross_entropy>(ops, table);
  bind<&OpTable::cross_entropy_backward, cross_entropy_backward>(ops, table);
}

}  // namespace trifold::cpu
