// Launchers of layer norm, column sums, table rows and cross entropy.
#include <numeric>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void layer_norm(const KernelTable& table, Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                Tensor gain, Tensor bias, double eps) {
  expect_matrix("layer_norm", "x", x);
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  expect("layer_norm", "y", y, x.dtype, x.elements());
  expect("layer_norm", "mean", mean, accumulate_type(x.dtype), rows);
  expect("layer_norm", "rstd", rstd, accumulate_type(x.dtype), rows);
  expect("layer_norm", "gain", gain, x.dtype, columns);
  expect("layer_norm", "bias", bias, x.dtype, columns);
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    auto *center = mean.as<Accumulate<T>>(), *inverse = rstd.as<Accumulate<T>>();
    const T *in = x.as<T>(), *gains = gain.as<T>(), *biases = bias.as<T>();
    const auto kernel = storage_kernels<T>(table).layer_norm;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, center + begin, inverse + begin, in + begin * columns, gains, biases,
             end - begin, columns, eps);
    });
  });
}

void layer_norm_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x,
                         Tensor mean, Tensor rstd, Tensor gain) {
  expect_matrix("layer_norm_backward", "x", x);
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  expect("layer_norm_backward", "dx", dx, x.dtype, x.elements());
  expect("layer_norm_backward", "dy", dy, x.dtype, x.elements());
  expect("layer_norm_backward", "mean", mean, accumulate_type(x.dtype), rows);
  expect("layer_norm_backward", "rstd", rstd, accumulate_type(x.dtype), rows);
  expect("layer_norm_backward", "gain", gain, x.dtype, columns);
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T *grad = dy.as<T>(), *in = x.as<T>(), *gains = gain.as<T>();
    const auto *center = mean.as<Accumulate<T>>(), *inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).layer_norm_backward;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, grad + begin * columns, in + begin * columns, center + begin,
             inverse + begin, gains, end - begin, columns);
    });
  });
}

void layer_norm_backward_weight(const KernelTable& table, Stream& stream, Tensor dgain, Tensor dbias,
                                Tensor dy, Tensor x, Tensor mean, Tensor rstd, bool accumulate) {
  expect_matrix("layer_norm_backward_weight", "x", x);
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  const DType wide = accumulate_type(x.dtype);
  expect("layer_norm_backward_weight", "dgain", dgain, wide, columns);
  expect("layer_norm_backward_weight", "dbias", dbias, wide, columns);
  expect("layer_norm_backward_weight", "dy", dy, x.dtype, x.elements());
  expect("layer_norm_backward_weight", "mean", mean, wide, rows);
  expect("layer_norm_backward_weight", "rstd", rstd, wide, rows);
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
  expect_matrix("column_sum", "dy", dy);
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  expect("column_sum", "db", db, accumulate_type(dy.dtype), columns);
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
  expect_matrix("embedding", "y", y);
  const int64_t columns = y.last_dim();
  const int64_t held = rows.rank() == 0 ? 0 : rows.dim(0);
  expect("embedding", "table", rows, y.dtype, held * columns);
  expect("embedding", "ids", ids, DType::I32, y.row_count());
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
  expect_matrix("embedding_backward", "dy", dy);
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  const int64_t held = drows.rank() == 0 ? 0 : drows.dim(0);
  expect("embedding_backward", "dtable", drows, accumulate_type(dy.dtype), held * columns);
  expect("embedding_backward", "ids", ids, DType::I32, rows);
  expect("embedding_backward", "order", order, DType::I32, rows);
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
  expect_matrix("softmax_stats", "logits", logits);
  const int64_t rows = max.elements();
  const VocabularyPart part = vocabulary_part(logits.last_dim(), first_id, vocab);
  expect("softmax_stats", "logits", logits, logits.dtype, rows * part.columns);
  const DType wide = accumulate_type(logits.dtype);
  expect("softmax_stats", "max", max, wide, rows);
  expect("softmax_stats", "sum", sum, wide, rows);
  expect("softmax_stats", "target", target, wide, rows);
  expect("softmax_stats", "labels", labels, DType::I32, rows);
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
  expect("softmax_rescale", "local_max", local_max, sum.dtype, rows);
  expect("softmax_rescale", "global_max", global_max, sum.dtype, rows);
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
  expect("cross_entropy", "max", max, loss.dtype, rows);
  expect("cross_entropy", "sum", sum, loss.dtype, rows);
  expect("cross_entropy", "target", target, loss.dtype, rows);
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
  expect_matrix("cross_entropy_backward", "logits", logits);
  const int64_t rows = max.elements();
  const VocabularyPart part = vocabulary_part(logits.last_dim(), first_id, vocab);
  expect("cross_entropy_backward", "logits", logits, logits.dtype, rows * part.columns);
  expect("cross_entropy_backward", "max", max, accumulate_type(logits.dtype), rows);
  expect("cross_entropy_backward", "dlogits", dlogits, logits.dtype, rows * part.columns);
  expect("cross_entropy_backward", "sum", sum, max.dtype, rows);
  expect("cross_entropy_backward", "labels", labels, DType::I32, rows);
  expect("cross_entropy_backward", "weight", weight, DType::F32, rows);
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
