#include "ops/quantized.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/kernels.h"
#include "ops/kernels/formulas.h"

namespace trifold {

namespace {

std::array<float, 16> make_nf4() {
  std::array<float, 16> values{};
  for (uint32_t code = 0; code < 16; ++code) values[code] = cpu::nf4_value(code);
  return values;
}

const std::array<float, 16>& nf4() {
  static const std::array<float, 16> kValues = make_nf4();
  return kValues;
}

// The middles between neighbouring values.
const std::array<float, 15>& nf4_borders() {
  static const std::array<float, 15> kBorders = [] {
    std::array<float, 15> borders{};
    for (size_t i = 0; i < borders.size(); ++i) borders[i] = (nf4()[i] + nf4()[i + 1]) / 2;
    return borders;
  }();
  return kBorders;
}

// The smallest bf16 number that is not below `magnitude`, as its bits.
uint16_t round_up(float magnitude) {
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  return static_cast<uint16_t>((bits + 0xffffU) >> 16);
}

float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The scale of a block whose largest magnitude is `largest`.
uint16_t scale_for(QuantizedType type, float largest) {
  return round_up(type == QuantizedType::Nf4 ? largest : largest / 127);
}

// The nearest code to a ratio x / scale: the one of the larger value of two for Nf4, by halving the 15 borders, and the even
// one for Int8.
uint8_t nf4_code_for(float ratio, const std::array<float, 15>& borders) {
  size_t code = 0;
  for (const size_t half : {size_t{8}, size_t{4}, size_t{2}, size_t{1}})
    code += ratio >= borders[code + half - 1] ? half : 0;
  return static_cast<uint8_t>(code);
}
uint8_t int8_code_for(float ratio) {
  return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(ratio), -127.0F, 127.0F)));
}

int64_t rows_of_band(const QuantizedForm& form, int64_t first) { return form.band_end(first) - first; }

// The index of the scale of an element of a band, from the band's first scale on.
int64_t scale_at(const QuantizedForm& form, int64_t row, int64_t column) {
  return form.along_columns ? column : row * form.row_blocks() + column / kQuantizedBlock;
}

void check_sizes(const QuantizedForm& form, int64_t first, size_t x, size_t codes, size_t scales) {
  const int64_t rows = rows_of_band(form, first);
  const int64_t expected = form.along_columns ? form.columns : rows * form.row_blocks();
  check(static_cast<int64_t>(x) == rows * form.columns &&
            static_cast<int64_t>(codes) == rows * form.row_bytes() &&
            static_cast<int64_t>(scales) == expected,
        "a band of {} rows of {} elements has {} codes' bytes and {} scales, not {} and {}", rows,
        form.columns, rows * form.row_bytes(), expected, codes, scales);
}

}  // namespace

std::span<const float, 16> nf4_values() { return nf4(); }

void quantize_band(const QuantizedForm& form, int64_t first, std::span<const float> x,
                   std::span<uint8_t> codes, std::span<uint16_t> scales) {
  check_sizes(form, first, x.size(), codes.size(), scales.size());
  const int64_t rows = rows_of_band(form, first);
  const int shift = form.along_columns ? 0 : std::countr_zero(static_cast<uint64_t>(kQuantizedBlock));
  const int64_t row_scales = form.along_columns ? 0 : form.row_blocks();
  std::vector<float> divisors(scales.size(), 0.0F);  // first the largest magnitudes
  for (int64_t row = 0; row < rows; ++row) {
    const float* const from = x.data() + row * form.columns;
    float* const largest = divisors.data() + row * row_scales;
    for (int64_t column = 0; column < form.columns; ++column) {
      const float magnitude = std::abs(from[column]);
      float& most = largest[column >> shift];
      if (!(magnitude <= most) && !std::isnan(most)) most = magnitude;  // NaN stays
    }
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    check(std::isfinite(divisors[i]), "an element is {}, which cannot be quantized", divisors[i]);
    scales[i] = scale_for(form.type, divisors[i]);
    const float scale = widened(scales[i]);
    check(std::isfinite(scale), "an element is {}, whose scale no bf16 number can be", divisors[i]);
    divisors[i] = scale > 0 ? scale : 1;
  }
  const std::array<float, 15> borders = nf4_borders();
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  for (int64_t row = 0; row < rows; ++row) {
    const float* const from = x.data() + row * form.columns;
    const float* const divisor = divisors.data() + row * row_scales;
    uint8_t* const line = codes.data() + row * form.row_bytes();
    if (form.type == QuantizedType::Int8)
      for (int64_t column = 0; column < form.columns; ++column)
        line[column] = int8_code_for(from[column] / divisor[column >> shift]);
    else
      for (int64_t column = 0; column < form.columns; ++column)
        line[column / 2] |= static_cast<uint8_t>(
            nf4_code_for(from[column] / divisor[column >> shift], borders) << (column % 2 * 4));
  }
}

void dequantize_band(const QuantizedForm& form, int64_t first, std::span<const uint8_t> codes,
                     std::span<const uint16_t> scales, std::span<float> x) {
  check_sizes(form, first, x.size(), codes.size(), scales.size());
  const int64_t rows = rows_of_band(form, first);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < form.columns; ++column) {
      const int64_t line = row * form.row_bytes();
      const float code =
          form.type == QuantizedType::Int8
              ? cpu::int8_value(codes[static_cast<size_t>(line + column)])
              : cpu::nf4_value(cpu::nf4_code(codes[static_cast<size_t>(line + column / 2)], column));
      x[static_cast<size_t>(row * form.columns + column)] =
          code * widened(scales[static_cast<size_t>(scale_at(form, row, column))]);
    }
}

}  // namespace trifold
