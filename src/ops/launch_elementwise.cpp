// Launchers of movement, elementwise operations and dropout.
#include <algorithm>
#include <cstring>

#include "ops/activations.h"
#include "ops/launch.h"
#include "ops/launch_support.h"
#include "ops/narrow.h"
#include "ops/round_blocks.h"

namespace trifold::cpu {

namespace {

template <class T>
void reduce_whole_numbers(Stream& stream, Tensor y, Tensor x, Reduce reduction) {
  T* out = y.as<T>();
  const T* in = x.as<T>();
  over_elements(stream, y.elements(), kCheapGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = reduction == Reduce::Sum ? out[i] + in[i] : std::max(out[i], in[i]);
  });
}

}  // namespace

void fill(const KernelTable& table, Stream& stream, Tensor y, double value) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const auto kernel = storage_kernels<T>(table).fill;
    over_elements(stream, y.elements(), kCheapGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin, end - begin, static_cast<Accumulate<T>>(value));
    });
  });
}

void copy(const KernelTable&, Stream& stream, Tensor y, Tensor x) {
  if (y.bytes() == 0) return;
  auto* out = static_cast<std::byte*>(y.data);
  const auto* in = static_cast<const std::byte*>(x.data);
  over_elements(stream, static_cast<int64_t>(y.bytes()), kCheapGrain * 4, [=](int64_t begin, int64_t end) {
    std::memmove(out + begin, in + begin, static_cast<size_t>(end - begin));
  });
}

void convert(const KernelTable& table, Stream& stream, Tensor y, Tensor x) {
  if (y.dtype == x.dtype) return copy(table, stream, y, x);
  const bool to_f32 = y.dtype == DType::F32;
  dispatch_float(to_f32 ? x.dtype : y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (to_f32) {
      over_elements(stream, y.elements(), kCheapGrain,
                    [out = y.as<float>(), in = x.as<T>(), kernel = storage_kernels<T>(table).to_f32](
                        int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin); });
    } else {
      over_elements(stream, y.elements(), kCheapGrain,
                    [out = y.as<T>(), in = x.as<float>(), kernel = storage_kernels<T>(table).from_f32](
                        int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin); });
    }
  });
}

void dequantize(const KernelTable& table, Stream& stream, Tensor y, Tensor stored,
                const QuantizedForm& form) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, form.rows, form.columns, kMathGrain,
              [out = y.as<T>(), codes = static_cast<const uint8_t*>(stored.as<uint8_t>()),
               scales_at = form.scales_at(), rows = quantized_rows(form),
               kernel = storage_kernels<T>(table).dequantize](int64_t begin, int64_t end) {
                kernel(out, codes, reinterpret_cast<const Bfloat16*>(codes + scales_at), begin, end, rows);
              });
  });
}

void scale(const KernelTable& table, Stream& stream, Tensor y, const Factor& a) {
  const LateFactor factor = late("scale", a);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const auto kernel = storage_kernels<T>(table).scale;
    over_elements(stream, y.elements(), kCheapGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin, end - begin, static_cast<Accumulate<T>>(factor.now()));
    });
  });
}

void add(const KernelTable& table, Stream& stream, Tensor y, Tensor a, Tensor b) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* left = a.as<T>();
    const T* right = b.as<T>();
    const auto kernel = storage_kernels<T>(table).add;
    over_elements(stream, y.elements(), kCheapGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin, left + begin, right + begin, end - begin);
    });
  });
}

void reduce(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Reduce reduction) {
  if (y.dtype == DType::I32) return reduce_whole_numbers<int32_t>(stream, y, x, reduction);
  if (y.dtype == DType::I64) return reduce_whole_numbers<int64_t>(stream, y, x, reduction);
  if (reduction == Reduce::Sum) return add(table, stream, y, y, x);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* in = x.as<T>();
    const auto kernel = storage_kernels<T>(table).maximum;
    over_elements(stream, y.elements(), kCheapGrain,
                  [=](int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin); });
  });
}

void fill_rows(const KernelTable&, Stream& stream, Tensor y, Tensor row) {
  auto* out = static_cast<std::byte*>(y.data);
  const auto* in = static_cast<const std::byte*>(row.data);
  const auto bytes = static_cast<int64_t>(row.bytes());
  over_elements(stream, y.row_count(), row_grain(y.last_dim(), kCheapGrain), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memcpy(out + r * bytes, in, static_cast<size_t>(bytes));
  });
}

namespace {

// y = f(x) and dx = dy f'(saved), for entry `Number` of kActivations.
template <size_t Number>
void activation(const KernelTable& table, Stream& stream, const Forms& forms, Tensor x) {
  const Tensor y = forms.rows;
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* in = x.as<T>();
    const auto kernel = storage_kernels<T>(table).activations[kActivations[Number].formula].forward;
    over_elements(stream, y.elements(), kMathGrain,
                  [=](int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin); });
  });
}

template <size_t Number>
void activation_backward(const KernelTable& table, Stream& stream, const Forms& forms, Tensor dy,
                         Tensor saved) {
  const Tensor dx = forms.rows;
  dispatch_float(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = dx.as<T>();
    const T* grad = dy.as<T>();
    const T* in = saved.as<T>();
    const auto kernel = storage_kernels<T>(table).activations[kActivations[Number].formula].backward;
    over_elements(stream, dx.elements(), kMathGrain, [=](int64_t begin, int64_t end) {
      kernel(out + begin, grad + begin, in + begin, end - begin);
    });
  });
}

// y = residual + drop(x), or drop(x) if residual is null.
void drop(const KernelTable& table, Stream& stream, Tensor y, const Tensor* residual, Tensor x,
          const DropRule& rule, const LateIndex& first) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = y.as<T>();
    const T* base = residual == nullptr ? nullptr : residual->as<T>();
    const T* in = x.as<T>();
    const auto kernel = storage_kernels<T>(table).dropout;
    over_elements(stream, y.elements(), rule.active ? kMathGrain : kCheapGrain,
                  [=](int64_t begin, int64_t end) {
                    kernel(out + begin, base == nullptr ? nullptr : base + begin, in + begin, end - begin,
                           first.now() + static_cast<uint64_t>(begin), rule);
                  });
  });
}

}  // namespace

void dropout(const KernelTable& table, Stream& stream, Tensor y, Tensor x, const Dropout& dropout) {
  drop(table, stream, y, nullptr, x, drop_rule("dropout", dropout), first_element("dropout", dropout));
}

void dropout_add(const KernelTable& table, Stream& stream, Tensor y, Tensor residual, Tensor x,
                 const Dropout& dropout) {
  drop(table, stream, y, &residual, x, drop_rule("dropout_add", dropout),
       first_element("dropout_add", dropout));
}

void scale_uniform(const KernelTable& table, Stream& stream, Tensor y, Tensor x, double low, double high,
                   const Dropout& which) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, y.elements(), kMathGrain,
                  [out = y.as<T>(), in = x.as<T>(), first = first_element("scale_uniform", which),
                   rule = uniform_rule(low, high, which),
                   kernel = storage_kernels<T>(table).scale_uniform](int64_t begin, int64_t end) {
                    kernel(out + begin, in + begin, end - begin, first.now() + static_cast<uint64_t>(begin),
                           rule);
                  });
  });
}

void write_forms(const KernelTable& /*table*/, Stream& stream, const Forms& y, Tensor x) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  const auto* in = x.as<Bfloat16>();
  if (is_present(y.rows))
    over_rows(stream, rows, columns, kCheapGrain,
              [=, codes = y.rows.as<uint8_t>()](int64_t begin, int64_t end) {
                auto* scales = reinterpret_cast<float*>(codes + rows * columns);
                narrow_rows(codes, scales, in, rows, columns, begin, end);
              });
  const auto over_blocks = [&](auto body) {
    over_elements(stream, scale_blocks(rows), row_grain(columns * kScaleBlock, kCheapGrain), body);
  };
  if (is_present(y.turned))
    over_blocks([=, codes = y.turned.as<uint8_t>()](int64_t begin, int64_t end) {
      auto* scales = reinterpret_cast<float*>(codes + rows * columns);
      turn_rows(codes, scales, in, rows, columns, begin * kScaleBlock, std::min(end * kScaleBlock, rows));
    });
  if (is_present(y.sums))
    over_blocks([=, sums = y.sums.as<float>()](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        sum_rows(sums + block * columns, in, columns, block * kScaleBlock,
                 std::min((block + 1) * kScaleBlock, rows));
    });
}

void add_elementwise(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::fill, fill>(ops, table);
  bind<&OpTable::copy, copy>(ops, table);
  bind<&OpTable::convert, convert>(ops, table);
  bind<&OpTable::dequantize, dequantize>(ops, table);
  bind<&OpTable::scale, scale>(ops, table);
  bind<&OpTable::add, add>(ops, table);
  bind<&OpTable::reduce, reduce>(ops, table);
  bind<&OpTable::fill_rows, fill_rows>(ops, table);
  for_each_activation([&](auto number) {
    constexpr size_t kNumber = decltype(number)::value;
    bind<kActivations[kNumber].forward, activation<kNumber>>(ops, table);
    bind<kActivations[kNumber].backward, activation_backward<kNumber>>(ops, table);
  });
  bind<&OpTable::write_forms, write_forms>(ops, table);
  bind<&OpTable::dropout, dropout>(ops, table);
  bind<&OpTable::dropout_add, dropout_add>(ops, table);
  bind<&OpTable::scale_uniform, scale_uniform>(ops, table);
}

}  // namespace trifold::cpu
