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

// The nearest code to x / scale; of two, the one of the larger value for Nf4, and the even one for Int8.
uint8_t code_for(QuantizedType type, float x, float scale) {
  const float ratio = scale > 0 ? x / scale : 0;
  if (type == QuantizedType::Int8)
    return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(ratio), -127.0F, 127.0F)));
  int code = 0;
  for (const float border : nf4_borders()) code += ratio >= border ? 1 : 0;
  return static_cast<uint8_t>(code);
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
  std::vector<float> largest(scales.size(), 0.0F);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < form.columns; ++column) {
      const float magnitude = std::abs(x[static_cast<size_t>(row * form.columns + column)]);
      check(std::isfinite(magnitude), "an element is {}, which cannot be quantized", magnitude);
      float& most = largest[static_cast<size_t>(scale_at(form, row, column))];
      most = std::max(most, magnitude);
    }
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = scale_for(form.type, largest[i]);
    check(std::isfinite(widened(scales[i])), "an element is {}, whose scale no bf16 number can be",
          largest[i]);
  }
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < form.columns; ++column) {
      const uint8_t code = code_for(form.type, x[static_cast<size_t>(row * form.columns + column)],
                                    widened(scales[static_cast<size_t>(scale_at(form, row, column))]));
      const int64_t line = row * form.row_bytes();
      if (form.type == QuantizedType::Int8)
        codes[static_cast<size_t>(line + column)] = code;
      else
        codes[static_cast<size_t>(line + column / 2)] |= static_cast<uint8_t>(code << (column % 2 * 4));
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
