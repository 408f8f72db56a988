// Entries of the CUDA table: norms, column sums, rotary, table rows, cross entropy.
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

namespace {

// The elements of an optional tensor; null if it has no memory.
template <class T>
T* pointer_of(const Tensor& tensor) {
  return tensor.data == nullptr ? nullptr : tensor.as<T>();
}

// The gradients to compute: dx, or dgain and dbias, or all three. dbias has no memory for the root-mean-square norm.
struct NormGradients {
  Tensor dx, dgain, dbias;
};

// `mean` has no memory for the root-mean-square norm, `residual` if there is none, `gain` if dx is not computed.
void norm_backward(Stream& stream, const char* op, const NormGradients& to, Tensor residual, Tensor dy,
                   Tensor x, Tensor mean, Tensor rstd, Tensor gain, double gain_offset, bool accumulate) {
  const int64_t rows = rstd.elements();
  const int64_t columns = (to.dgain.rank() > 0 ? to.dgain : gain).elements();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    const size_t bytes = to.dgain.rank() == 0 ? 0 : norm_gradient_scratch(rows, columns, sizeof(T));
    enqueue_with_scratch(stream, op, bytes,
                         [=, dx = pointer_of<T>(to.dx), gains = pointer_of<Wide>(to.dgain),
                          biases = pointer_of<Wide>(to.dbias), added = pointer_of<T>(residual),
                          grad = dy.as<T>(), in = x.as<T>(), center = pointer_of<Wide>(mean),
                          inverse = rstd.as<Wide>(), by = pointer_of<T>(gain)](CudaStream on, void* scratch) {
                           norm_gradients<T>(on, scratch, dx, gains, biases, added, grad, in, center, inverse,
                                             by, gain_offset, rows, columns, accumulate);
                         });
  });
}

}  // namespace

void layer_norm(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gain, Tensor bias,
                double eps, double gain_offset) {
  if (is_narrow(y))
    return enqueue(
        stream, "layer_norm",
        [=, out = narrow_matrix(y), center = mean.as<float>(), inverse = rstd.as<float>(),
         in = x.as<Bfloat16>(), gains = gain.as<Bfloat16>(), biases = bias.as<Bfloat16>()](CudaStream on) {
          norm_narrow(on, out, center, inverse, in, gains, biases, eps, gain_offset);
        });
  const int64_t rows = x.row_count();
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "layer_norm",
            [=, out = y.as<T>(), center = mean.as<Accumulate<T>>(), inverse = rstd.as<Accumulate<T>>(),
             in = x.as<T>(), gains = gain.as<T>(), biases = bias.as<T>()](CudaStream on) {
              norm<T>(on, out, center, inverse, in, gains, biases, rows, columns, eps, gain_offset);
            });
  });
}

void layer_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor mean,
                             Tensor rstd, Tensor gain, double gain_offset) {
  norm_backward(stream, "layer_norm_backward", {dx, {}, {}}, residual, dy, x, mean, rstd, gain, gain_offset,
                false);
}

void layer_norm_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                         Tensor gain, double gain_offset) {
  layer_norm_backward_add(stream, dx, {}, dy, x, mean, rstd, gain, gain_offset);
}

void layer_norm_backward_weight(Stream& stream, Tensor dgain, Tensor dbias, Tensor dy, Tensor x, Tensor mean,
                                Tensor rstd, bool accumulate) {
  norm_backward(stream, "layer_norm_backward_weight", {{}, dgain, dbias}, {}, dy, x, mean, rstd, {}, 0,
                accumulate);
}

void layer_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor dbias, Tensor residual,
                             Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor gain, bool accumulate,
                             double gain_offset) {
  norm_backward(stream, "layer_norm_backward_all", {dx, dgain, dbias}, residual, dy, x, mean, rstd, gain,
                gain_offset, accumulate);
}

void rms_norm(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor gain, double eps, double gain_offset) {
  if (is_narrow(y))
    return enqueue(stream, "rms_norm",
                   [=, out = narrow_matrix(y), inverse = rstd.as<float>(), in = x.as<Bfloat16>(),
                    gains = gain.as<Bfloat16>()](CudaStream on) {
                     norm_narrow(on, out, nullptr, inverse, in, gains, nullptr, eps, gain_offset);
                   });
  const int64_t columns = gain.elements();
  const int64_t rows = rstd.elements();
  dispatch_float(gain.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "rms_norm",
            [=, out = y.as<T>(), inverse = rstd.as<Accumulate<T>>(), in = x.as<T>(),
             gains = gain.as<T>()](CudaStream on) {
              norm<T>(on, out, nullptr, inverse, in, gains, nullptr, rows, columns, eps, gain_offset);
            });
  });
}

void rms_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor rstd,
                           Tensor gain, double gain_offset) {
  norm_backward(stream, "rms_norm_backward", {dx, {}, {}}, residual, dy, x, {}, rstd, gain, gain_offset,
                false);
}

void rms_norm_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd, Tensor gain,
                       double gain_offset) {
  rms_norm_backward_add(stream, dx, {}, dy, x, rstd, gain, gain_offset);
}

void rms_norm_backward_weight(Stream& stream, Tensor dgain, Tensor dy, Tensor x, Tensor rstd,
                              bool accumulate) {
  norm_backward(stream, "rms_norm_backward_weight", {{}, dgain, {}}, {}, dy, x, {}, rstd, {}, 0, accumulate);
}

void rms_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor residual, Tensor dy, Tensor x,
                           Tensor rstd, Tensor gain, bool accumulate, double gain_offset) {
  norm_backward(stream, "rms_norm_backward_all", {dx, dgain, {}}, residual, dy, x, {}, rstd, gain,
                gain_offset, accumulate);
}

void rms_part_sums(Stream& stream, Tensor sums, Tensor x, Tensor dy, Tensor gain, double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        stream, "rms_part_sums",
        [=, out = sums.as<Accumulate<T>>(), in = x.as<T>(), grad = pointer_of<T>(dy), gains = gain.as<T>()](
            CudaStream on) { rms_part_sums<T>(on, out, in, grad, gains, gain_offset, rows, columns); });
  });
}

void rms_part(Stream& stream, Tensor y, Tensor x, Tensor rstd, Tensor gain, double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "rms_part",
            [=, out = y.as<T>(), in = x.as<T>(), inverse = rstd.as<Accumulate<T>>(), gains = gain.as<T>()](
                CudaStream on) { rms_part<T>(on, out, in, inverse, gains, gain_offset, rows, columns); });
  });
}

void rms_part_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd, Tensor along, Tensor gain,
                       double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "rms_part_backward",
            [=, out = dx.as<T>(), grad = dy.as<T>(), in = x.as<T>(), inverse = rstd.as<Accumulate<T>>(),
             share = along.as<Accumulate<T>>(), gains = gain.as<T>()](CudaStream on) {
              rms_part_backward<T>(on, out, grad, in, inverse, share, gains, gain_offset, rows, columns);
            });
  });
}

void column_sum(Stream& stream, Tensor db, Tensor dy, bool accumulate) {
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, "column_sum", column_scratch(rows, columns, sizeof(T)),
                         [=, out = db.as<Accumulate<T>>(), grad = dy.as<T>()](CudaStream on, void* scratch) {
                           column_sum<T>(on, scratch, out, grad, rows, columns, accumulate);
                         });
  });
}

void rotary(Stream& stream, Tensor y, Tensor x, Tensor positions, const Rotary& rotation) {
  const int64_t rows = positions.elements();
  const cpu::RotaryShape shape = cpu::rotary_shape(y, x, rotation);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "rotary",
            [=, out = y.as<T>() + rotation.y_column, in = x.as<T>() + rotation.x_column,
             position = positions.as<int32_t>()](CudaStream on) {
              rotary<T>(on, out, in, position, rows, shape);
            });
  });
}

void embedding(Stream& stream, Tensor y, Tensor table, Tensor ids, int64_t first_id, bool accumulate) {
  const int64_t columns = y.last_dim();
  const int64_t held = table.rank() == 0 ? 0 : table.dim(0);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "embedding",
            [=, out = y.as<T>(), in = table.as<T>(), id = ids.as<int32_t>(), rows = y.row_count()](
                CudaStream on) { embedding<T>(on, out, in, id, rows, columns, first_id, held, accumulate); });
  });
}

// `order`, the CPU's work space, is not used: sorting needs more memory.
void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor ids, Tensor /*order*/,
                        int64_t first_id) {
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  const int64_t held = dtable.rank() == 0 ? 0 : dtable.dim(0);
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, "embedding_backward", embedding_scratch(rows),
                         [=, out = dtable.as<Accumulate<T>>(), grad = dy.as<T>(), id = ids.as<int32_t>()](
                             CudaStream on, void* scratch) {
                           embedding_backward<T>(on, scratch, out, grad, id, rows, columns, first_id, held);
                         });
  });
}

void softmax_stats(Stream& stream, Tensor max, Tensor sum, Tensor target, Tensor logits, Tensor labels,
                   int64_t first_id, int64_t vocab) {
  const int64_t rows = max.elements();
  const cpu::VocabularyPart part = cpu::vocabulary_part(logits.last_dim(), first_id, vocab);
  dispatch_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "softmax_stats",
            [=, most = max.as<Accumulate<T>>(), total = sum.as<Accumulate<T>>(),
             hit = target.as<Accumulate<T>>(), in = logits.as<T>(), label = labels.as<int32_t>()](
                CudaStream on) { softmax_stats<T>(on, most, total, hit, in, label, rows, part); });
  });
}

void softmax_rescale(Stream& stream, Tensor sum, Tensor local_max, Tensor global_max) {
  const int64_t rows = sum.elements();
  dispatch_wide_float(sum.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "softmax_rescale",
            [=, total = sum.as<T>(), local = local_max.as<T>(), global = global_max.as<T>()](CudaStream on) {
              softmax_rescale<T>(on, total, local, global, rows);
            });
  });
}

void cross_entropy(Stream& stream, Tensor loss, Tensor max, Tensor sum, Tensor target) {
  const int64_t rows = loss.elements();
  dispatch_wide_float(loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "cross_entropy",
            [=, out = loss.as<T>(), most = max.as<T>(), total = sum.as<T>(),
             hit = target.as<T>()](CudaStream on) { cross_entropy<T>(on, out, most, total, hit, rows); });
  });
}

void cross_entropy_backward(Stream& stream, Tensor dlogits, Tensor logits, Tensor max, Tensor sum,
                            Tensor labels, Tensor weight, const Factor& scale, int64_t first_id,
                            int64_t vocab) {
  constexpr const char* kOp = "cross_entropy_backward";
  const int64_t rows = max.elements();
  const cpu::VocabularyPart part = cpu::vocabulary_part(logits.last_dim(), first_id, vocab);
  const cpu::LateFactor factor = cpu::late(kOp, scale);
  dispatch_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, kOp,
            [=, out = dlogits.as<T>(), in = logits.as<T>(), most = max.as<Accumulate<T>>(),
             total = sum.as<Accumulate<T>>(), label = labels.as<int32_t>(),
             weights = weight.as<float>()](CudaStream on) {
              cross_entropy_backward<T>(on, out, in, most, total, label, weights, factor, rows, part);
            });
  });
}

void cross_entropy_all(Stream& stream, Tensor dlogits, Tensor max, Tensor sum, Tensor target, Tensor logits,
                       Tensor labels, Tensor weight, const Factor& scale, int64_t first_id, int64_t vocab) {
  constexpr const char* kOp = "cross_entropy_all";
  const int64_t rows = max.elements();
  const cpu::VocabularyPart part = cpu::vocabulary_part(logits.last_dim(), first_id, vocab);
  const cpu::LateFactor factor = cpu::late(kOp, scale);
  dispatch_float(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, kOp,
            [=, out = dlogits.as<T>(), most = max.as<Accumulate<T>>(), total = sum.as<Accumulate<T>>(),
             hit = target.as<Accumulate<T>>(), in = logits.as<T>(), label = labels.as<int32_t>(),
             weights = weight.as<float>()](CudaStream on) {
              cross_entropy_all<T>(on, out, most, total, hit, in, label, weights, factor, rows, part);
            });
  });
}

void add_rows(OpTable& ops) {
  ops.layer_norm = layer_norm;
  ops.layer_norm_backward_add = layer_norm_backward_add;
  ops.layer_norm_backward = layer_norm_backward;
  ops.layer_norm_backward_weight = layer_norm_backward_weight;
  ops.rms_part_sums = rms_part_sums;
  ops.rms_part = rms_part;
  ops.rms_part_backward = rms_part_backward;
  ops.rms_norm = rms_norm;
  ops.rms_norm_backward_add = rms_norm_backward_add;
  ops.rms_norm_backward = rms_norm_backward;
  ops.rms_norm_backward_weight = rms_norm_backward_weight;
  ops.layer_norm_backward_all = layer_norm_backward_all;
  ops.rms_norm_backward_all = rms_norm_backward_all;
  ops.column_sum = column_sum;
  ops.rotary = rotary;
  ops.embedding = embedding;
  ops.embedding_backward = embedding_backward;
  ops.softmax_stats = softmax_stats;
  ops.softmax_rescale = softmax_rescale;
  ops.cross_entropy = cross_entropy;
  ops.cross_entropy_backward = cross_entropy_backward;
  ops.cross_entropy_all = cross_entropy_all;
}

}  // namespace trifold::cuda
