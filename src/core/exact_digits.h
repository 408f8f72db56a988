// How ExactSum (core/exact_sum.h) splits a double into digits, as plain functions that host and device code
// share.
#pragma once

#include <cstdint>

#include "core/hd.h"

namespace trifold {

// Digit d counts in units of 2^(32 d - 1074). The last digit is signed and begins at bit 2112; the largest
// double has bit 2097, so 2^60 of them fit. The digits are followed by the counts of +infinities, -infinities
// and NaNs.
constexpr int kExactDigitBits = 32;
constexpr int kExactDigits = 67;
constexpr int kExactPositive = kExactDigits;
constexpr int kExactNegative = kExactDigits + 1;
constexpr int kExactNan = kExactDigits + 2;
constexpr int kExactLimbs = kExactDigits + 3;
// After this many additions, limbs that began below 2^32 are below 2^62: each addition changes a limb by less
// than 2^33.
constexpr int64_t kMostExactAdditions = int64_t{1} << 29;

// The amounts that a double adds to limbs [first, first + count); count is 3, or 1 if the double is not finite.
struct ExactDigits {
  int first;
  int count;
  int64_t at[3];
};

// The digits of the double with these bits.
HD inline ExactDigits exact_digits(uint64_t bits) {
  constexpr uint64_t kMask = (uint64_t{1} << kExactDigitBits) - 1;
  const bool negative = bits >> 63 != 0;
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff)
    return {fraction != 0 ? kExactNan : negative ? kExactNegative : kExactPositive, 1, {1, 0, 0}};
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
  const int position = exponent == 0 ? 0 : exponent - 1;  // place of the mantissa's lowest bit
  const int shift = position % kExactDigitBits;
  const uint64_t lower = (mantissa & kMask) << shift;
  const uint64_t upper = (mantissa >> kExactDigitBits) << shift;
  // All ones if the number is negative: (x ^ sign) - sign is then -x.
  const int64_t sign = -static_cast<int64_t>(negative);
  ExactDigits digits{position / kExactDigitBits,
                     3,
                     {static_cast<int64_t>(lower & kMask),
                      static_cast<int64_t>((lower >> kExactDigitBits) + (upper & kMask)),
                      static_cast<int64_t>(upper >> kExactDigitBits)}};
  for (int64_t& digit : digits.at) digit = (digit ^ sign) - sign;
  return digits;
}

}  // namespace trifold
