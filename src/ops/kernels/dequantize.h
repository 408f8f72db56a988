// Elements of quantized matrices (ops/quantized.h), row by row.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
[[gnu::always_inline]] inline void dequantize_row(T* y, const uint8_t* codes, const Bfloat16* scales,
                                                  const QuantizedRows& form) {
  const int shift = form.scale_shift;
  if (form.four_bits)
    Lane::each(form.columns, [=](int64_t i) {
      put_rounded(y[i], nf4_value(nf4_code(codes[i / 2], i)) * value(scales[i >> shift]));
    });
  else
    Lane::each(form.columns,
               [=](int64_t i) { put_rounded(y[i], int8_value(codes[i]) * value(scales[i >> shift])); });
}

// Rows [begin, end).
template <class T>
void dequantize(T* y, const uint8_t* codes, const Bfloat16* scales, int64_t begin, int64_t end,
                const QuantizedRows& form) {
  for (int64_t row = begin; row < end; ++row)
    dequantize_row(y + row * form.columns, codes + row * form.row_bytes, scales + first_scale(form, row),
                   form);
}

}  // namespace
}  // namespace trifold::cpu
