// The two 16-bit floating-point formats as storage. Arithmetic is done in f32 (Accumulate); a result is
// rounded to nearest, ties to even, when it is stored.
//   Bfloat16  1 sign, 8 exponent, 7 mantissa bits: the upper half of an f32, with its range.
//   Float16   1 sign, 5 exponent, 10 mantissa bits (IEEE 754 binary16): largest finite value 65504.
// The conversions below are exact reference definitions for ordinary code; the kernels of `ops` have
// vectorized ones (ops/kernels/storage.h). This header has no function bodies, because kernels include it
// (ops/kernels.h).
#pragma once

#include <cstdint>

namespace trifold {

struct Bfloat16 {
  uint16_t bits;
  Bfloat16() = default;
  explicit Bfloat16(double value);  // rounds once; beyond the largest finite value, infinity; NaN stays NaN
  explicit operator double() const;
  explicit operator float() const;
};

struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit Float16(double value);  // rounds once; beyond the largest finite value, infinity; NaN stays NaN
  explicit operator double() const;
  explicit operator float() const;
};

template <class T>
struct AccumulateOf {
  using Type = T;
};
template <>
struct AccumulateOf<Bfloat16> {
  using Type = float;
};
template <>
struct AccumulateOf<Float16> {
  using Type = float;
};
// The type in which values stored as T are computed and summed.
template <class T>
using Accumulate = typename AccumulateOf<T>::Type;

}  // namespace trifold
