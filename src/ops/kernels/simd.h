// Simd: vectors of T, as wide as the registers of the instruction set being compiled for (GCC's vector extension).
#pragma once

#include <cstdint>

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Simd {
  using Vector [[gnu::vector_size(kVectorBytes)]] = T;
  static constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
};

// Reduces the lanes of a vector to one value, by combining halves.
template <class T, class Vector, class Combine>
[[gnu::always_inline]] inline T fold(const Vector& v, Combine combine) {
  constexpr int kLanes = sizeof(Vector) / sizeof(T);
  if constexpr (kLanes == 16) {
    return fold<T>(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)),
                   combine);
  } else if constexpr (kLanes == 8) {
    return fold<T>(
        combine(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)),
        combine);
  } else if constexpr (kLanes == 4) {
    const auto twice = combine(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
    return combine(T(twice[0]), T(twice[1]));
  } else {
    return combine(T(v[0]), T(v[1]));
  }
}

}  // namespace
}  // namespace trifold::cpu
