// FP8 against its definition: every code, rounding against a search among all codes, and the kernels that scale and
// round a tensor, under the emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {
namespace {

using cpu::Fp8;

// The value of a code, from the format's definition.
double meaning(Fp8 format, int code) {
  const int mantissa_bits = format == Fp8::E4M3 ? 3 : 2;
  const int bias = format == Fp8::E4M3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (format == Fp8::E4M3 && (code & 0x7f) == 0x7f) return NAN;
  if (format == Fp8::E5M2 && exponent == 31) return NAN;  // infinity is never made
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

uint8_t rounded(Fp8 format, float x) {
  return format == Fp8::E4M3 ? cpu::round_fp8<Fp8::E4M3>(x) : cpu::round_fp8<Fp8::E5M2>(x);
}

float value_of(Fp8 format, uint8_t code) {
  return format == Fp8::E4M3 ? cpu::value_of_fp8<Fp8::E4M3>(code) : cpu::value_of_fp8<Fp8::E5M2>(code);
}

// The nearest of all finite codes of x's sign, of two as near the even one.
int nearest(Fp8 format, float x) {
  const int sign = std::signbit(x) ? 0x80 : 0;
  int best = sign;
  for (int code = sign; code < sign + 0x80; ++code) {
    const double error = std::abs(meaning(format, code) - static_cast<double>(x));
    const double least = std::abs(meaning(format, best) - static_cast<double>(x));
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return best;
}

class Fp8Format : public ::testing::TestWithParam<Fp8> {};

TEST_P(Fp8Format, EveryCodeHasItsValueAndRoundsToItself) {
  for (int code = 0; code < 256; ++code) {
    const double expected = meaning(GetParam(), code);
    const float got = value_of(GetParam(), static_cast<uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << code;
      continue;
    }
    EXPECT_EQ(static_cast<double>(got), expected) << code;
    EXPECT_EQ(rounded(GetParam(), got), code);
  }
}

TEST_P(Fp8Format, RoundsToTheNearestCode) {
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) {
    const auto here = static_cast<float>(meaning(GetParam(), code));
    const auto next = static_cast<float>(meaning(GetParam(), std::min(code + 1, 255)));
    if (std::isnan(here) || std::isnan(next)) continue;
    const float middle = (here + next) / 2;
    for (const float x : {middle, std::nextafter(middle, here), std::nextafter(middle, next)})
      numbers.push_back(x);
  }
  const PhiloxKey key = philox_key(3, "fp8");
  for (uint64_t i = 0; i < 2000; ++i)
    numbers.push_back(static_cast<float>(std::ldexp(philox_normal(key, i), static_cast<int>(i % 40) - 25)));
  for (const float x : numbers) EXPECT_EQ(rounded(GetParam(), x), nearest(GetParam(), x)) << x;
}

TEST_P(Fp8Format, TheEdgeIsNotPassed) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float most = GetParam() == Fp8::E4M3 ? 448 : 57344;
  for (const float x : {most, most * 1.2F, 1e30F, infinity}) {
    EXPECT_EQ(value_of(GetParam(), rounded(GetParam(), x)), most);
    EXPECT_EQ(value_of(GetParam(), rounded(GetParam(), -x)), -most);
  }
  EXPECT_TRUE(std::isnan(value_of(GetParam(), rounded(GetParam(), NAN))));
}

struct Matrix {
  int64_t rows, columns;
};

std::vector<Bfloat16> numbers_of(const Matrix& m, double size) {
  const PhiloxKey key = philox_key(4, "fp8 matrix");
  std::vector<Bfloat16> x(static_cast<size_t>(m.rows * m.columns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = Bfloat16(size * philox_normal(key, i));
  return x;
}

struct Made {
  std::vector<uint8_t> codes;
  Fp8Scale scale{};
};

Made make(Fp8 format, const Matrix& m, const std::vector<Bfloat16>& x, bool transposed) {
  Made made{std::vector<uint8_t>(x.size(), 0xee), {}};
  std::vector<std::byte> scratch(kFp8Scratch);
  to_fp8(nullptr, scratch.data(), made.codes.data(), &made.scale, x.data(), m.rows, m.columns, transposed,
         format);
  return made;
}

TEST_P(Fp8Format, KernelsScaleTheLargestToTheEdgeAndRound) {
  for (const Matrix& m : {Matrix{16, 16}, {48, 80}, {64, 64}, {16, 208}, {512, 48}})
    for (const double size : {1.0, 1e-6, 3e4}) {
      SCOPED_TRACE(::testing::Message() << m.rows << " x " << m.columns << " times " << size);
      const std::vector<Bfloat16> x = numbers_of(m, size);
      float largest = 0;
      for (const Bfloat16 number : x) largest = std::max(largest, std::abs(static_cast<float>(number)));
      const float most = GetParam() == Fp8::E4M3 ? 448 : 57344;
      const Made plain = make(GetParam(), m, x, false);
      const Made turned = make(GetParam(), m, x, true);
      EXPECT_EQ(plain.scale.to, most / largest);
      EXPECT_EQ(plain.scale.from, 1 / plain.scale.to);
      EXPECT_EQ(turned.scale.to, plain.scale.to);
      for (int64_t r = 0; r < m.rows; ++r)
        for (int64_t c = 0; c < m.columns; ++c) {
          const auto at = static_cast<size_t>(r * m.columns + c);
          const uint8_t expected = rounded(GetParam(), static_cast<float>(x[at]) * plain.scale.to);
          ASSERT_EQ(plain.codes[at], expected) << r << ", " << c;
          ASSERT_EQ(turned.codes[static_cast<size_t>(c * m.rows + r)], expected) << r << ", " << c;
        }
    }
}

TEST_P(Fp8Format, KeepsZerosAndValuesThatAreNotFinite) {
  const Matrix m{16, 32};
  std::vector<Bfloat16> x(512, Bfloat16(0.0));
  const Made zeros = make(GetParam(), m, x, false);
  EXPECT_EQ(zeros.scale.to, 1);
  EXPECT_EQ(std::count(zeros.codes.begin(), zeros.codes.end(), 0), 512);
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(HUGE_VAL)}) {
    x[300] = Bfloat16(bad);
    EXPECT_TRUE(std::isnan(value_of(GetParam(), make(GetParam(), m, x, true).codes[12 * 16 + 9]))) << bad;
  }
  x[300] = Bfloat16(std::ldexp(1.0, -130));  // its scale alone would be infinite
  EXPECT_TRUE(std::isfinite(make(GetParam(), m, x, false).scale.to));
}

INSTANTIATE_TEST_SUITE_P(Both, Fp8Format, ::testing::Values(Fp8::E4M3, Fp8::E5M2),
                         [](const auto& each) { return each.param == Fp8::E4M3 ? "E4M3" : "E5M2"; });

}  // namespace
}  // namespace trifold::cuda
