// Launchers of the operations that Llama's blocks need and GPT's do not: gated activations, the root-mean-square norm, rotary
// position embedding.
#include "ops/activations.h"
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

template <class T>
const GateKernels<T>& kernels_of(const KernelTable& table, const Gating& gating) {
  return storage_kernels<T>(table).gates[static_cast<size_t>(gating.kind)];
}

}  // namespace

void gated(const KernelTable& table, Stream& stream, const Forms& forms, Tensor x, const Gating& gating) {
  const Tensor y = forms.rows;
  const int64_t rows = y.row_count();
  const int64_t columns = y.last_dim();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* in = x.as<T>();
    const auto kernel = kernels_of<T>(table, gating).forward;
    over_rows(stream, rows, columns, kMathGrain, [=, rule = gate_rule(gating)](int64_t begin, int64_t end) {
      kernel(out + begin * columns, in + 2 * begin * columns, end - begin, columns, rule);
    });
  });
}

void gated_backward(const KernelTable& table, Stream& stream, const Forms& forms, Tensor dy, Tensor x,
                    const Gating& gating) {
  const Tensor dx = forms.rows;
  const int64_t rows = dy.row_count();
  const int64_t columns = dy.last_dim();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T *grad = dy.as<T>(), *in = x.as<T>();
    const auto kernel = kernels_of<T>(table, gating).backward;
    over_rows(stream, rows, columns, kMathGrain, [=, rule = gate_rule(gating)](int64_t begin, int64_t end) {
      kernel(out + 2 * begin * columns, grad + begin * columns, in + 2 * begin * columns, end - begin,
             columns, rule);
    });
  });
}

void rms_norm(const KernelTable& table, Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor gain,
              double eps, double gain_offset) {
  const int64_t columns = gain.elements();
  const int64_t rows = rstd.elements();
  dispatch_float(gain.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    auto* inverse = rstd.as<Accumulate<T>>();
    const T *in = x.as<T>(), *gains = gain.as<T>();
    const auto kernel = storage_kernels<T>(table).rms_norm;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, inverse + begin, in + begin * columns, gains, end - begin, columns, eps,
             gain_offset);
    });
  });
}

void rms_norm_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd,
                       Tensor gain, double gain_offset) {
  const int64_t columns = gain.elements();
  const int64_t rows = rstd.elements();
  dispatch_float(gain.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T *grad = dy.as<T>(), *in = x.as<T>(), *gains = gain.as<T>();
    const auto* inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).rms_norm_backward;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, grad + begin * columns, in + begin * columns, inverse + begin, gains,
             end - begin, columns, gain_offset);
    });
  });
}

void rms_norm_backward_weight(const KernelTable& table, Stream& stream, Tensor dgain, Tensor dy, Tensor x,
                              Tensor rstd, bool accumulate) {
  const int64_t columns = dgain.elements();
  const int64_t rows = rstd.elements();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* gains = dgain.as<Accumulate<T>>();
    const T *grad = dy.as<T>(), *in = x.as<T>();
    const auto* inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).rms_norm_backward_weight;
    over_columns(stream, rows, columns, [=](int64_t begin, int64_t end) {
      if (!accumulate) set_to_zero(begin, end, gains);
      kernel(gains, grad, in, inverse, rows, columns, begin, end);
    });
  });
}

void rms_part_sums(const KernelTable& table, Stream& stream, Tensor sums, Tensor x, Tensor dy, Tensor gain,
                   double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* out = sums.as<Accumulate<T>>();
    const T *in = x.as<T>(), *gains = gain.as<T>();
    const T* grad = dy.data == nullptr ? nullptr : dy.as<T>();
    const auto kernel = storage_kernels<T>(table).rms_part_sums;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin, in + begin * columns, grad == nullptr ? nullptr : grad + begin * columns, gains,
             end - begin, columns, gain_offset);
    });
  });
}

void rms_part(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor rstd, Tensor gain,
              double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T *in = x.as<T>(), *gains = gain.as<T>();
    const auto* inverse = rstd.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).rms_part;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, in + begin * columns, inverse + begin, gains, end - begin, columns,
             gain_offset);
    });
  });
}

void rms_part_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd,
                       Tensor along, Tensor gain, double gain_offset) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T *grad = dy.as<T>(), *in = x.as<T>(), *gains = gain.as<T>();
    const auto *inverse = rstd.as<Accumulate<T>>(), *share = along.as<Accumulate<T>>();
    const auto kernel = storage_kernels<T>(table).rms_part_backward;
    over_rows(stream, rows, columns, kMathGrain * 2, [=](int64_t begin, int64_t end) {
      kernel(out + begin * columns, grad + begin * columns, in + begin * columns, inverse + begin,
             share + begin, gains, end - begin, columns, gain_offset);
    });
  });
}

void rotary(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor positions,
            const Rotary& rotation) {
  const int64_t rows = positions.elements();
  const RotaryShape shape = rotary_shape(y, x, rotation);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* in = x.as<T>();
    const int32_t* position = positions.as<int32_t>();
    const auto kernel = storage_kernels<T>(table).rotary;
    const int64_t from = rotation.x_column, to = rotation.y_column;
    over_rows(stream, rows, rotation.columns, kMathGrain, [=](int64_t begin, int64_t end) {
      kernel(out + to + begin * shape.y_stride, in + from + begin * shape.x_stride, position + begin,
             end - begin, shape);
    });
  });
}

void add_llama(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::gated, gated>(ops, table);
  bind<&OpTable::gated_backward, gated_backward>(ops, table);
  bind<&OpTable::rms_norm, rms_norm>(ops, table);
  bind<&OpTable::rms_norm_backward, rms_norm_backward>(ops, table);
  bind<&OpTable::rms_norm_backward_weight, rms_norm_backward_weight>(ops, table);
  bind<&OpTable::rms_part_sums, rms_part_sums>(ops, table);
  bind<&OpTable::rms_part, rms_part>(ops, table);
  bind<&OpTable::rms_part_backward, rms_part_backward>(ops, table);
  bind<&OpTable::rotary, rotary>(ops, table);
}

}  // namespace trifold::cpu
