// Conversion of one floating-point number between storage and computation. `value` converts to the type of computation
// (f32 for the 16-bit types, otherwise the type itself); `put` rounds a result to nearest, ties to even. On the CPU
// both are branch-free arithmetic, so that loops vectorise for every instruction set; a GPU has instructions for them.
#pragma once

#include "core/float16.h"
#include "core/hd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// The floats with these bit patterns (one 16-bit number in each 32 bits); Word is uint32_t or a vector of
// them, Wide the floats of the same size.
template <class Wide, class Word>
[[gnu::always_inline]] HD inline Wide widen_bfloat16(Word word) {
  return __builtin_bit_cast(Wide, word << 16);
}

// Exponent and mantissa are shifted to their position in an f32, and the exponent's bias is corrected by a
// multiplication, which also normalises subnormals. Infinity and NaN instead get the largest exponent.
template <class Wide, class Word>
[[gnu::always_inline]] HD inline Wide widen_float16(Word word) {
  const Word magnitude = (word & 0x7fffU) << 13;
  const Word finite = __builtin_bit_cast(Word, __builtin_bit_cast(Wide, magnitude) * 0x1p112F);
  const Word result = (word & 0x7c00U) == 0x7c00U ? magnitude | 0x7f800000U : finite;
  return __builtin_bit_cast(Wide, result | (word & 0x8000U) << 16);
}

[[gnu::always_inline]] HD inline float value(float x) { return x; }
[[gnu::always_inline]] HD inline double value(double x) { return x; }
[[gnu::always_inline]] HD inline float value(Bfloat16 x) { return widen_bfloat16<float>(uint32_t{x.bits}); }
[[gnu::always_inline]] HD inline float value(Float16 x) {
#if defined(__CUDA_ARCH__)
  float wide = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return widen_float16<float>(uint32_t{x.bits});
#endif
}

[[gnu::always_inline]] HD inline void put(float& to, float x) { to = x; }
[[gnu::always_inline]] HD inline void put(double& to, double x) { to = x; }

// Rounds by integer addition: 0x7fff, just under half of the last kept bit's unit, plus the last kept bit carries into
// the kept bits exactly when rounding is up.
[[gnu::always_inline]] HD inline void put(Bfloat16& to, float x) {
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const auto word = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (word + 0x7fffU + (word >> 16 & 1U)) >> 16;
  const uint32_t nan = word >> 16 | 0x40U;
  to.bits = static_cast<uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
#endif
}

// Normal results are rounded as for Bfloat16, after correcting the exponent's bias. For subnormal results, the f32
// addition of 0.5 rounds to their unit, 2^-24, and leaves the number of units in the low bits.
[[gnu::always_inline]] HD inline void put(Float16& to, float x) {
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const auto word = __builtin_bit_cast(uint32_t, x);
  const uint32_t magnitude = word & 0x7fffffffU;
  const uint32_t normal = (magnitude - (112U << 23) + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5F) - 0x3f000000U;
  uint32_t result = magnitude < 0x38800000U ? subnormal : normal;  // below 2^-14
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;            // from 65520 on
  result = magnitude > 0x7f800000U ? 0x7e00U : result;             // NaN
  to.bits = static_cast<uint16_t>(result | (word >> 16 & 0x8000U));
#endif
}

// The f32 next to x, rounded to odd: if x is none, the neighbour whose last bit is 1. Rounded again, to at most 22 bits,
// it gives what x itself does.
[[gnu::always_inline]] HD inline float rounded_to_odd(double x) {
  const auto near = static_cast<float>(x);
  const auto back = static_cast<double>(near);
  const auto bits = __builtin_bit_cast(uint32_t, near);
  const bool is_beyond = x < 0 ? back < x : back > x;
  const uint32_t odd = (is_beyond ? bits - 1 : bits) | 1U;
  return __builtin_bit_cast(float, back == x ? bits : odd);
}

// Assigns a number of a type of computation to one of any type, rounded once.
template <class Y>
[[gnu::always_inline]] HD inline void put_rounded(Y& y, float x) {
  put(y, x);
}
template <class Y>
[[gnu::always_inline]] HD inline void put_rounded(Y& y, double x) {
  put(y, rounded_to_odd(x));
}
[[gnu::always_inline]] HD inline void put_rounded(double& y, float x) { y = static_cast<double>(x); }
[[gnu::always_inline]] HD inline void put_rounded(float& y, double x) { y = static_cast<float>(x); }
[[gnu::always_inline]] HD inline void put_rounded(double& y, double x) { y = x; }

// Copies a number of any type, converted if the types differ.
template <class Y, class X>
struct Move {
  [[gnu::always_inline]] HD static inline void one(Y& y, X x) { put_rounded(y, value(x)); }
};
template <class T>
struct Move<T, T> {
  [[gnu::always_inline]] HD static inline void one(T& y, T x) { y = x; }
};

// Whether the type of computation is the storage type T itself.
template <class T>
inline constexpr bool kIsWide = true;
template <>
inline constexpr bool kIsWide<Bfloat16> = false;
template <>
inline constexpr bool kIsWide<Float16> = false;

}  // namespace
}  // namespace trifold::cpu
