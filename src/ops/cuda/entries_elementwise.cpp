// Entries of the CUDA table: movement, activations, dropout, sums to a scalar.
#include "ops/activations.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

void* host_workspace(size_t bytes) {
  static thread_local std::vector<std::max_align_t> memory;
  const size_t count = bytes / sizeof(std::max_align_t) + 1;
  if (memory.size() < count) memory.resize(count);
  return memory.data();
}

void fill(Stream& stream, Tensor y, double value) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "fill",
            [out = y.as<T>(), n = y.elements(), value](CudaStream on) { fill<T>(on, out, n, value); });
  });
}

void convert(Stream& stream, Tensor y, Tensor x) {
  const int64_t n = y.elements();
  if (y.dtype == x.dtype) {
    enqueue(stream, "convert",
            [to = y.data, from = x.data, bytes = static_cast<int64_t>(y.bytes())](CudaStream on) {
              copy_bytes(on, to, from, bytes);
            });
    return;
  }
  const bool wider = y.dtype == DType::F32;
  dispatch_float(wider ? x.dtype : y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (wider)
      enqueue(stream, "convert",
              [to = y.as<float>(), from = x.as<T>(), n](CudaStream on) { to_f32<T>(on, to, from, n); });
    else
      enqueue(stream, "convert",
              [to = y.as<T>(), from = x.as<float>(), n](CudaStream on) { from_f32<T>(on, to, from, n); });
  });
}

void dequantize(Stream& stream, Tensor y, Tensor stored, const QuantizedForm& form) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        stream, "dequantize",
        [out = y.as<T>(), codes = static_cast<const uint8_t*>(stored.as<uint8_t>()),
         scales_at = form.scales_at(), count = form.rows, rows = cpu::quantized_rows(form)](CudaStream on) {
          dequantize<T>(on, out, codes, reinterpret_cast<const Bfloat16*>(codes + scales_at), count, rows);
        });
  });
}

void scale(Stream& stream, Tensor y, const Factor& a) {
  const cpu::LateFactor factor = cpu::late("scale", a);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "scale",
            [out = y.as<T>(), n = y.elements(), factor](CudaStream on) { scale<T>(on, out, n, factor); });
  });
}

void add(Stream& stream, Tensor y, Tensor a, Tensor b) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "add",
            [out = y.as<T>(), left = a.as<T>(), right = b.as<T>(), n = y.elements()](CudaStream on) {
              add<T>(on, out, left, right, n);
            });
  });
}

namespace {

template <class T>
void reduce_as(Stream& stream, Tensor y, Tensor x, Reduce reduction) {
  enqueue(stream, "reduce", [out = y.as<T>(), in = x.as<T>(), n = y.elements(), reduction](CudaStream on) {
    if (reduction == Reduce::Sum)
      add<T>(on, out, out, in, n);
    else
      maximum<T>(on, out, in, n);
  });
}

}  // namespace

void reduce(Stream& stream, Tensor y, Tensor x, Reduce reduction) {
  if (y.dtype == DType::I32) return reduce_as<int32_t>(stream, y, x, reduction);
  if (y.dtype == DType::I64) return reduce_as<int64_t>(stream, y, x, reduction);
  dispatch_float(y.dtype, [&](auto zero) { reduce_as<decltype(zero)>(stream, y, x, reduction); });
}

void fill_rows(Stream& stream, Tensor y, Tensor row) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "fill_rows",
            [out = y.as<T>(), in = row.as<T>(), rows = y.row_count(), columns = y.last_dim()](CudaStream on) {
              fill_rows<T>(on, out, in, rows, columns);
            });
  });
}

namespace {

// y = f(x) and dx = dy f'(saved), for entry `Number` of kActivations.
template <size_t Number>
void activation(Stream& stream, const Forms& forms, Tensor x) {
  if (!forms.are_wide())
    return enqueue(stream, kActivations[Number].name,
                   [out = narrow_forms(forms), in = x.as<Bfloat16>()](CudaStream on) {
                     activate_narrow(on, kActivations[Number].formula, out, in);
                   });
  const Tensor y = forms.rows;
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, kActivations[Number].name,
            [out = y.as<T>(), in = x.as<T>(), n = y.elements()](CudaStream on) {
              activate<T>(on, kActivations[Number].formula, out, in, n);
            });
  });
}

template <size_t Number>
void activation_backward(Stream& stream, const Forms& forms, Tensor dy, Tensor saved) {
  if (!forms.are_wide())
    return enqueue(
        stream, kActivations[Number].backward_name,
        [out = narrow_forms(forms), grad = dy.as<Bfloat16>(), in = saved.as<Bfloat16>()](CudaStream on) {
          activate_backward_narrow(on, kActivations[Number].formula, out, grad, in);
        });
  const Tensor dx = forms.rows;
  dispatch_float(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, kActivations[Number].backward_name,
            [out = dx.as<T>(), grad = dy.as<T>(), in = saved.as<T>(), n = dx.elements()](CudaStream on) {
              activate_backward<T>(on, kActivations[Number].formula, out, grad, in, n);
            });
  });
}

}  // namespace

void write_forms(Stream& stream, const Forms& y, Tensor x) {
  enqueue(stream, "write_forms",
          [out = narrow_forms(y), in = x.as<Bfloat16>()](CudaStream on) { write_forms(on, out, in); });
}

void gated(Stream& stream, const Forms& forms, Tensor x, const Gating& gating) {
  if (!forms.are_wide())
    return enqueue(
        stream, "gated",
        [out = narrow_forms(forms), in = x.as<Bfloat16>(), formula = static_cast<size_t>(gating.kind),
         rule = gate_rule(gating)](CudaStream on) { gated_narrow(on, formula, rule, out, in); });
  const Tensor y = forms.rows;
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "gated",
            [out = y.as<T>(), in = x.as<T>(), rows = y.row_count(), columns = y.last_dim(),
             formula = static_cast<size_t>(gating.kind), rule = gate_rule(gating)](CudaStream on) {
              gated<T>(on, formula, rule, out, in, rows, columns);
            });
  });
}

void gated_backward(Stream& stream, const Forms& forms, Tensor dy, Tensor x, const Gating& gating) {
  if (!forms.are_wide())
    return enqueue(stream, "gated_backward",
                   [out = narrow_forms(forms), grad = dy.as<Bfloat16>(), in = x.as<Bfloat16>(),
                    formula = static_cast<size_t>(gating.kind), rule = gate_rule(gating)](CudaStream on) {
                     gated_backward_narrow(on, formula, rule, out, grad, in);
                   });
  const Tensor dx = forms.rows;
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "gated_backward",
            [out = dx.as<T>(), grad = dy.as<T>(), in = x.as<T>(), rows = dy.row_count(),
             columns = dy.last_dim(), formula = static_cast<size_t>(gating.kind), rule = gate_rule(gating)](
                CudaStream on) { gated_backward<T>(on, formula, rule, out, grad, in, rows, columns); });
  });
}

namespace {

void drop(Stream& stream, const char* op, Tensor y, const Tensor* residual, Tensor x,
          const Dropout& options) {
  const cpu::DropRule rule = cpu::drop_rule(op, options);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* base = residual == nullptr ? nullptr : residual->as<T>();
    enqueue(stream, op,
            [out = y.as<T>(), base, in = x.as<T>(), n = y.elements(), first = cpu::first_element(op, options),
             rule](CudaStream on) { dropout<T>(on, out, base, in, n, first, rule); });
  });
}

}  // namespace

void dropout(Stream& stream, Tensor y, Tensor x, const Dropout& dropout) {
  drop(stream, "dropout", y, nullptr, x, dropout);
}

void dropout_add(Stream& stream, Tensor y, Tensor residual, Tensor x, const Dropout& dropout) {
  drop(stream, "dropout_add", y, &residual, x, dropout);
}

void scale_uniform(Stream& stream, Tensor y, Tensor x, double low, double high, const Dropout& which) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "scale_uniform",
            [out = y.as<T>(), in = x.as<T>(), n = y.elements(),
             first = cpu::first_element("scale_uniform", which), rule = cpu::uniform_rule(low, high, which)](
                CudaStream on) { scale_uniform<T>(on, out, in, n, first, rule); });
  });
}

void sum_squares(Stream& stream, Tensor total, Tensor x) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, "sum_squares", kSumScratch,
                         [out = total.as<double>(), in = x.as<T>(), n = x.elements()](
                             CudaStream on, void* scratch) { sum_squares<T>(on, scratch, out, in, n); });
  });
}

void weighted_sum(Stream& stream, Tensor total, Tensor x, Tensor weight) {
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, "weighted_sum", kSumScratch,
                         [out = total.as<double>(), in = x.as<T>(), w = weight.as<float>(), n = x.elements()](
                             CudaStream on, void* scratch) { weighted_sum<T>(on, scratch, out, in, w, n); });
  });
}

void add_elementwise(OpTable& ops) {
  ops.fill = fill;
  ops.convert = convert;
  ops.dequantize = dequantize;
  ops.scale = scale;
  ops.add = add;
  ops.reduce = reduce;
  ops.fill_rows = fill_rows;
  for_each_activation([&](auto number) {
    constexpr size_t kNumber = decltype(number)::value;
    ops.*kActivations[kNumber].forward = activation<kNumber>;
    ops.*kActivations[kNumber].backward = activation_backward<kNumber>;
  });
  ops.write_forms = write_forms;
  ops.gated = gated;
  ops.gated_backward = gated_backward;
  ops.dropout = dropout;
  ops.dropout_add = dropout_add;
  ops.scale_uniform = scale_uniform;
  ops.sum_squares = sum_squares;
  ops.weighted_sum = weighted_sum;
}

}  // namespace trifold::cuda
