// Small floats of 8 bits (SmallFloat): all numbers, and random rounding to them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "unit/ops_support.h"

namespace trifold {
namespace {

using ops_test::Host;
using ops_test::random_values;
using ops_test::Values;
using ops_test::with_every_table;

constexpr SmallFloat kSmallFormats[] = {SmallFloat::Signed, SmallFloat::Positive};

// What a code stands for, by its exponent and mantissa.
double number_of(int code, SmallFloat format) {
  const bool is_signed = format == SmallFloat::Signed;
  if (code == (is_signed ? 0x80 : 0xff)) return std::numeric_limits<double>::quiet_NaN();
  const int magnitude = is_signed ? code & 0x7f : code;
  const int exponent = magnitude >> 2, mantissa = magnitude & 3;
  const int lowest = is_signed ? -29 : -58;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, lowest - 2) : std::ldexp(4 + mantissa, exponent - 1 + lowest - 2);
  return is_signed && code > 0x80 ? -value : value;
}

std::vector<double> widened(const OpTable& ops, Stream& stream, std::vector<uint8_t> codes,
                            SmallFloat format) {
  const auto n = static_cast<int64_t>(codes.size());
  const Host y(DType::F32, {n});
  ops.widen_small(stream, y, {codes.data(), DType::U8, {n}}, format);
  return y.values();
}

std::vector<uint8_t> rounded(const OpTable& ops, Stream& stream, const Values& x, SmallFloat format,
                             uint64_t seed = 1) {
  std::vector<uint8_t> codes(x.size());
  const auto n = static_cast<int64_t>(x.size());
  RandomRounding which{philox_key(seed, "m")};
  which.format = format;
  ops.round_randomly(stream, {codes.data(), DType::U8, {n}}, Host(DType::F32, {n}, x), which);
  return codes;
}

TEST(SmallFloat, HasTheNumbersOfItsCodesAndKeepsThem) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const SmallFloat format : kSmallFormats)
    with_every_table([&](const OpTable& ops, Stream& stream) {
      const Values numbers = widened(ops, stream, codes, format);
      for (size_t i = 0; i < codes.size(); ++i) {
        const double expected = number_of(static_cast<int>(i), format);
        if (std::isnan(expected))
          EXPECT_TRUE(std::isnan(numbers[i])) << i;
        else
          EXPECT_EQ(numbers[i], expected) << i;
      }
      EXPECT_EQ(rounded(ops, stream, numbers, format), codes);
    });
  EXPECT_EQ(number_of(0x7f, SmallFloat::Signed), 3.5);
  EXPECT_EQ(number_of(1, SmallFloat::Signed), 0x1p-31);
  EXPECT_EQ(number_of(0xfe, SmallFloat::Positive), 24);
  EXPECT_EQ(number_of(1, SmallFloat::Positive), 0x1p-60);
}

// One of the two neighbours, and the number itself in the mean: of normal and subnormal numbers.
TEST(SmallFloat, RoundsAtRandom) {
  const int64_t n = 1 << 16;
  for (const SmallFloat format : kSmallFormats)
    for (const double x : {1.1, 1.3e-4, format == SmallFloat::Signed ? 1.3 * 0x1p-31 : 1.3 * 0x1p-60,
                           format == SmallFloat::Signed ? -0.7 : 0.7})
      with_every_table([&](const OpTable& ops, Stream& stream) {
        const Values y = widened(ops, stream, rounded(ops, stream, Values(n, x), format), format);
        double low = y[0], high = y[0], sum = 0;
        for (const double value : y) {
          low = std::min(low, value);
          high = std::max(high, value);
          sum += value;
        }
        EXPECT_LE(low, x);
        EXPECT_GE(high, x);
        const double step = high - low;
        EXPECT_LE(step, std::max(std::abs(x) * 0.25, format == SmallFloat::Signed ? 0x1p-31 : 0x1p-60));
        for (const double value : y) EXPECT_TRUE(value == low || value == high);
        EXPECT_NEAR(sum / n, x, 5 * 0.5 * step / std::sqrt(static_cast<double>(n)));
      });
}

TEST(SmallFloat, EndsAtTheLargest) {
  const float infinity = std::numeric_limits<float>::infinity();
  with_every_table([&](const OpTable& ops, Stream& stream) {
    EXPECT_EQ(rounded(ops, stream, {1e30, -1e30, 3.6, -0.0, 1e-38}, SmallFloat::Signed),
              (std::vector<uint8_t>{0x7f, 0xff, 0x7f, 0, 0}));
    EXPECT_EQ(rounded(ops, stream, {1e30, -1, 25, -0.0, 1e-38}, SmallFloat::Positive),
              (std::vector<uint8_t>{0xfe, 0, 0xfe, 0, 0}));
    EXPECT_EQ(rounded(ops, stream, {infinity, std::nan("")}, SmallFloat::Signed),
              (std::vector<uint8_t>{0x80, 0x80}));
    EXPECT_EQ(rounded(ops, stream, {infinity, std::nan("")}, SmallFloat::Positive),
              (std::vector<uint8_t>{0xff, 0xff}));
  });
}

// Columns of a matrix from within a row on, as in the whole matrix.
TEST(SmallFloat, IsTheSameInEveryPartOfATensor) {
  const int64_t rows = 5, columns = 12, width = 7;
  const Values x = random_values(rows * columns, 2);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const std::vector<uint8_t> whole = rounded(ops, stream, x, SmallFloat::Signed);
    Values part;
    std::vector<uint8_t> expected;
    for (int64_t i = 3; i < rows * width; ++i) {
      const auto at = static_cast<size_t>(i / width * columns + 4 + i % width);
      part.push_back(x[at]);
      expected.push_back(whole[at]);
    }
    std::vector<uint8_t> codes(part.size());
    const auto n = static_cast<int64_t>(part.size());
    ops.round_randomly(stream, {codes.data(), DType::U8, {n}}, Host(DType::F32, {n}, part),
                       {philox_key(1, "m"), 4, width, columns, 3, SmallFloat::Signed});
    EXPECT_EQ(codes, expected);
  });
}

}  // namespace
}  // namespace trifold
