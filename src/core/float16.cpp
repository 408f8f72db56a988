#include "core/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trifold {

namespace {

// Rounds to `mantissa` bits after the leading one, and to whole multiples of the smallest subnormal below
// 2^min_exponent. Scaling by a power of two is exact, so nearbyint is the only rounding.
double rounded(double value, int mantissa, int min_exponent, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double whole = std::nearbyint(std::ldexp(value, mantissa - exponent));
  const double result = std::ldexp(whole, exponent - mantissa);
  return std::abs(result) > largest ? std::copysign(INFINITY, value) : result;
}

}  // namespace

// A value rounded to bf16 is exactly an f32 whose lower half is zero.
Bfloat16::Bfloat16(double value) {
  const auto exact = static_cast<float>(rounded(value, 7, -126, 3.3895313892515355e38));
  bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16 | (std::isnan(value) ? 0x40U : 0U));
}

Bfloat16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
Bfloat16::operator double() const { return static_cast<double>(static_cast<float>(*this)); }

Float16::Float16(double value) {
  const uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
  const double exact = std::abs(rounded(value, 10, -14, 65504));
  uint32_t magnitude = 0;
  if (std::isnan(value)) {
    magnitude = 0x7e00;
  } else if (std::isinf(exact)) {
    magnitude = 0x7c00;
  } else if (exact != 0) {
    // A carry out of a subnormal's mantissa correctly gives the smallest normal number.
    const int exponent = std::max(std::ilogb(exact), -14);
    const auto mantissa = static_cast<uint32_t>(std::ldexp(exact, 10 - exponent));  // with the leading one
    magnitude = (static_cast<uint32_t>(exponent + 14) << 10) + mantissa;
  }
  bits = static_cast<uint16_t>(sign | magnitude);
}

Float16::operator double() const {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  double magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, -24);
  } else {
    magnitude = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}
Float16::operator float() const { return static_cast<float>(static_cast<double>(*this)); }

}  // namespace trifold
