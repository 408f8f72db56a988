// Comparison of arrays in tests: relative error, and the first difference in bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace trifold::test {

// max |a - b| / max |b|, with the reference `b`; max |a| if the reference is all zero. Infinity if an element of a or b
// is not finite, so that NaN never passes. Throws std::invalid_argument for unequal lengths.
template <class A, class B>
double relative_error(std::span<const A> a, std::span<const B> b) {
  if (a.size() != b.size()) throw std::invalid_argument("the arrays to compare differ in length");
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return largest > 0 ? difference / largest : difference;
}

// relative_error for anything that converts to spans, such as vectors and arrays.
template <class A, class B>
double relative_error(const A& a, const B& b) {
  return relative_error(std::span<const std::remove_cvref_t<decltype(a[0])>>(a),
                        std::span<const std::remove_cvref_t<decltype(b[0])>>(b));
}

// relative_error of two scalars: |a - b| / |b|.
inline double relative_error(double a, double b) {
  return relative_error(std::span(&a, 1), std::span(&b, 1));
}

constexpr ptrdiff_t kSame = -1;

// The first index at which the bits differ, or kSame. 0.0 and -0.0 differ, a NaN equals itself. Arrays of
// unequal lengths differ at the end of the shorter one.
template <class T>
ptrdiff_t first_difference(std::span<const T> a, std::span<const T> b) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i)
    if (std::bit_cast<Bits>(a[i]) != std::bit_cast<Bits>(b[i])) return static_cast<ptrdiff_t>(i);
  return a.size() == b.size() ? kSame : static_cast<ptrdiff_t>(common);
}

}  // namespace trifold::test
