// The two 8-bit floating-point formats of training (Micikevicius et al., "FP8 formats for deep learning",
// arXiv 2209.05433), for factors of products that are summed in f32.
//   E4M3  1 sign, 4 exponent, 3 mantissa bits, exponents biased by 7; largest number 448, no infinity
//   E5M2  1 sign, 5 exponent, 2 mantissa bits, biased by 15; largest number 57344
// Rounding is to nearest, ties to even. Numbers beyond the largest, infinity included, become the largest, so
// that values scaled exactly to the limit stay there; NaN stays NaN.
#pragma once

#include <cstdint>

#include "core/hd.h"

namespace trifold::cpu {

enum class Fp8 : uint8_t { E4M3, E5M2 };

template <Fp8 Format>
struct Fp8Of;
template <>
struct Fp8Of<Fp8::E4M3> {
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr float kLargest = 448;
  static constexpr uint32_t kLargestCode = 0x7e;
  static constexpr float kRounding = 0x1p14F;  // 2^23 times the unit of subnormal numbers
};
template <>
struct Fp8Of<Fp8::E5M2> {
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr float kLargest = 57344;
  static constexpr uint32_t kLargestCode = 0x7b;
  static constexpr float kRounding = 0x1p7F;
};

namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// As in number.h: adding just under half of the last kept bit, and that bit, carries exactly when rounding
// goes up; the f32 addition of kRounding leaves a subnormal result's units in the low bits.
template <Fp8 Format>
[[gnu::always_inline]] HD inline uint8_t round_fp8(float x) {
  using F = Fp8Of<Format>;
  constexpr int kDropped = 23 - F::kMantissa;
  const auto word = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = word >> 24 & 0x80U;
  const uint32_t bits = word & 0x7fffffffU;
  const auto magnitude = __builtin_bit_cast(float, bits);
  uint32_t code = 0x7f;  // NaN, for which every comparison is false
  if (magnitude >= F::kLargest) {
    code = F::kLargestCode;
  } else if (magnitude < F::kLargest && bits >= uint32_t{128 - F::kBias} << 23) {
    code = (bits + ((1U << (kDropped - 1)) - 1) + (bits >> kDropped & 1U)) >> kDropped;
    code -= uint32_t{127 - F::kBias} << F::kMantissa;
  } else if (magnitude < F::kLargest) {
    code =
        __builtin_bit_cast(uint32_t, magnitude + F::kRounding) - __builtin_bit_cast(uint32_t, F::kRounding);
  }
  return static_cast<uint8_t>(sign | code);
}

template <Fp8 Format>
[[gnu::always_inline]] HD inline float value_of_fp8(uint8_t code) {
  using F = Fp8Of<Format>;
  const uint32_t mantissa = code & ((1U << F::kMantissa) - 1);
  const uint32_t exponent = (code & 0x7fU) >> F::kMantissa;
  const uint32_t sign = (code & 0x80U) << 24;
  float magnitude = 0;
  if ((code & 0x7fU) > F::kLargestCode)  // includes E5M2's infinity, which rounding never produces
    magnitude = __builtin_bit_cast(float, 0x7fc00000U);
  else if (exponent == 0)
    magnitude = static_cast<float>(mantissa) * (F::kRounding * 0x1p-23F);
  else
    magnitude =
        __builtin_bit_cast(float, (exponent + 127 - F::kBias) << 23 | mantissa << (23 - F::kMantissa));
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | sign);
}

// Factors of a block of elements: an element is multiplied by `to` before it is rounded, and its code by `from`, the
// inverse.
struct BlockScale {
  float to, from;
};

// The largest power of two, at most 2^126, by which `largest` >= 0, a block's largest magnitude, does not exceed E4M3's
// largest number: 2^8 is added to its exponent, or 2^7 above 1.75 times a power of two. 1 for a block of zeros; NaN
// for one that is not finite, so that all of its codes are NaN.
[[gnu::always_inline]] HD inline BlockScale block_scale(float largest) {
  constexpr uint32_t kInfinite = 0xff, kMostExponent = 127 + 126, kMantissa = 0x7fffff,
                     kThreeQuarters = 0x600000;
  const auto word = __builtin_bit_cast(uint32_t, largest);
  const uint32_t exponent = word >> 23 & 0xffU;
  if (exponent == kInfinite) {
    const auto nan = __builtin_bit_cast(float, 0x7fc00000U);
    return {nan, nan};
  }
  if (largest == 0) return {1, 1};
  const uint32_t most = 2 * 127 + 8 - ((word & kMantissa) > kThreeQuarters ? 1U : 0U);
  const uint32_t wanted = most - exponent;
  const uint32_t to = wanted > kMostExponent ? kMostExponent : wanted;
  return {__builtin_bit_cast(float, to << 23), __builtin_bit_cast(float, (2 * 127 - to) << 23)};
}

}  // namespace

}  // namespace trifold::cpu
