// Quantized matrices: codes, scales and values as NumPy computes them (tools/reference/quantized_weights.py), every table,
// and bands that are quantized apart.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ops/quantized.h"
#include "support/test_data.h"
#include "unit/ops_support.h"

namespace trifold {
namespace {

using ops_test::Host;
using ops_test::with_every_table;

nlohmann::json golden() {
  return nlohmann::json::parse(std::ifstream(test::test_data() + "/golden/quantized.json"));
}

QuantizedForm form_of(const nlohmann::json& c) {
  return {c["type"] == "nf4" ? QuantizedType::Nf4 : QuantizedType::Int8, c["rows"], c["columns"],
          c["matrix_rows"], c["along_columns"]};
}

// The storage of a matrix, quantized band by band.
std::vector<uint8_t> quantize(const QuantizedForm& form, const std::vector<float>& x) {
  std::vector<uint8_t> stored(static_cast<size_t>(form.bytes()));
  std::vector<uint16_t> scales(static_cast<size_t>(form.scales()));
  for (int64_t row = 0; row < form.rows;) {
    const int64_t end = form.band_end(row);
    const int64_t first = form.first_scale(row);
    const int64_t last = end == form.rows ? form.scales() : form.first_scale(end);
    const auto part = [](auto& all, int64_t begin, int64_t until) {
      return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(until - begin));
    };
    quantize_band(form, row, part(x, row * form.columns, end * form.columns),
                  part(stored, row * form.row_bytes(), end * form.row_bytes()), part(scales, first, last));
    row = end;
  }
  std::memcpy(stored.data() + form.scales_at(), scales.data(), 2 * scales.size());
  return stored;
}

int64_t code_at(const QuantizedForm& form, const std::vector<uint8_t>& stored, int64_t row, int64_t column) {
  if (form.type == QuantizedType::Int8)
    return static_cast<int8_t>(stored[static_cast<size_t>(row * form.columns + column)]);
  const uint8_t pair = stored[static_cast<size_t>(row * form.row_bytes() + column / 2)];
  return column % 2 == 0 ? pair & 15 : pair >> 4;
}

TEST(Quantized, HasTheCodesAndScalesOfNumPy) {
  const nlohmann::json file = golden();
  const std::vector<float> table = file["nf4"];
  EXPECT_TRUE(std::equal(table.begin(), table.end(), nf4_values().begin()));
  for (const nlohmann::json& c : file["cases"]) {
    const QuantizedForm form = form_of(c);
    const std::vector<uint8_t> stored = quantize(form, c["x"]);
    std::vector<uint16_t> scales(static_cast<size_t>(form.scales()));
    std::memcpy(scales.data(), stored.data() + form.scales_at(), 2 * scales.size());
    EXPECT_EQ(scales, c["scales"].get<std::vector<uint16_t>>()) << c["type"];
    std::vector<int64_t> codes;
    for (int64_t row = 0; row < form.rows; ++row)
      for (int64_t column = 0; column < form.columns; ++column)
        codes.push_back(code_at(form, stored, row, column));
    EXPECT_EQ(codes, c["codes"].get<std::vector<int64_t>>()) << c["type"] << " of " << form.rows << " rows";
  }
}

TEST(Quantized, HasTheValuesOfNumPyInEveryTable) {
  const nlohmann::json file = golden();
  for (const nlohmann::json& c : file["cases"]) {
    const QuantizedForm form = form_of(c);
    std::vector<uint8_t> stored = quantize(form, c["x"]);
    const Tensor bytes{stored.data(), DType::U8, {form.bytes()}};
    const auto values = c["values"].get<std::vector<double>>();
    with_every_table([&](const OpTable& ops, Stream& stream) {
      const Host f32(DType::F32, {form.rows, form.columns}), f64(DType::F64, {form.rows, form.columns});
      ops.dequantize(stream, f32, bytes, form);
      ops.dequantize(stream, f64, bytes, form);
      EXPECT_EQ(f32.values(), values);
      EXPECT_EQ(f64.values(), values);
      for (const DType narrow : {DType::BF16, DType::F16}) {
        const Host y(narrow, {form.rows, form.columns}), rounded(narrow, {form.rows, form.columns}, values);
        ops.dequantize(stream, y, bytes, form);
        EXPECT_EQ(y.values(), rounded.values());
      }
    });
  }
}

// A part of a matrix, cut as ranks cut it, has the values that it has in the whole.
TEST(Quantized, IsTheSameInEveryPart) {
  const int64_t rows = 130, columns = 96;
  const std::vector<double> numbers = ops_test::random_values(rows * columns, 3);
  const std::vector<float> x(numbers.begin(), numbers.end());
  const auto values = [](const QuantizedForm& form, const std::vector<float>& from) {
    std::vector<uint8_t> stored = quantize(form, from);
    std::vector<float> y(from.size());
    ThreadPool pool(1);
    Stream stream(Stream::Mode::Inline, pool);
    cpu_ops().dequantize(stream, {y.data(), DType::F32, {form.rows, form.columns}},
                         {stored.data(), DType::U8, {form.bytes()}}, form);
    return y;
  };
  for (const QuantizedType type : {QuantizedType::Int8, QuantizedType::Nf4}) {
    const auto by_rows = values({type, rows, columns, rows, false}, x);
    const auto by_columns = values({type, rows, columns, rows, true}, x);
    EXPECT_NE(by_rows, by_columns);
    const std::vector<float> lower(x.begin() + 65 * columns, x.end());
    const auto of_lower = values({type, 65, columns, 65, false}, lower);
    EXPECT_TRUE(std::equal(of_lower.begin(), of_lower.end(), by_rows.begin() + 65 * columns));
    std::vector<float> left;
    for (int64_t row = 0; row < rows; ++row)
      left.insert(left.end(), x.begin() + row * columns, x.begin() + row * columns + 33);
    const auto of_left = values({type, rows, 33, rows, true}, left);
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_TRUE(std::equal(of_left.begin() + row * 33, of_left.begin() + (row + 1) * 33,
                             by_columns.begin() + row * columns));
  }
}

TEST(Quantized, RefusesWhatIsNoNumber) {
  const QuantizedForm form{QuantizedType::Nf4, 1, 4, 1, false};
  std::vector<uint8_t> codes(2);
  std::vector<uint16_t> scales(1);
  const std::vector<float> infinite{0, 1, std::numeric_limits<float>::infinity(), 0};
  EXPECT_THROW(quantize_band(form, 0, infinite, codes, scales), Error);
  const std::vector<float> unknown{std::nanf(""), 1, 0, 0};
  EXPECT_THROW(quantize_band(form, 0, unknown, codes, scales), Error);
  const std::vector<float> largest(4, std::numeric_limits<float>::max());
  EXPECT_THROW(quantize_band(form, 0, largest, codes, scales), Error);
}

// A scale is never below the largest magnitude, so the largest keeps its code; blocks of zeros stay zeros.
TEST(Quantized, RoundsScalesUp) {
  const QuantizedForm form{QuantizedType::Nf4, 1, 4, 1, false};
  std::vector<uint8_t> codes(2);
  std::vector<uint16_t> scales(1);
  std::vector<float> back(4);
  for (const float largest : {0.0F, 1.0F, 1.001F, 3.14159F, 1e-30F}) {
    const std::vector<float> x{0, largest, -largest, largest / 2};
    quantize_band(form, 0, x, codes, scales);
    dequantize_band(form, 0, codes, scales, back);
    EXPECT_EQ(back[0], 0);
    EXPECT_GE(back[1], largest);
    EXPECT_LE(back[1], largest * 1.0079F);
    EXPECT_EQ(back[2], -back[1]);
  }
}

}  // namespace
}  // namespace trifold
