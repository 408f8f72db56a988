// Lane: loops (`each`) and reductions (`sum`, `max`) over a row on one CPU thread, in vectors.
//
// Every function in this folder has internal linkage: this code is compiled once per instruction set, and the
// linker would merge functions with external linkage into whichever copy it saw first. For the same reason
// nothing here includes a header with inline functions, not even of the standard library. tests/house checks
// the result.
#pragma once

#include <cstdint>

#include "ops/kernels/simd.h"
#include "ops/kernels/storage.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): see above

struct Lane {
  // Calls body(i) for i in [0, n), in any order.
  template <class Body>
  [[gnu::always_inline]] static inline void each(int64_t n, Body body) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) body(i);
  }

  // The sum over i in [0, n) of value(at), where at(array) stands for array[i]; `at` reads whole vectors, and single
  // elements at the end. There are four partial sums; the order of additions depends on n only.
  template <class T, class Value>
  [[gnu::always_inline]] static inline T sum(int64_t n, Value value) {
    using Vectors = At<T>;
    constexpr int64_t kLanes = Simd<T>::kLanes;
    typename Simd<T>::Vector a{}, b{}, c{}, d{};
    int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      a += value(Vectors{i});
      b += value(Vectors{i + kLanes});
      c += value(Vectors{i + 2 * kLanes});
      d += value(Vectors{i + 3 * kLanes});
    }
    for (; i + kLanes <= n; i += kLanes) a += value(Vectors{i});
    T total = fold<T>((a + b) + (c + d), [](auto x, auto y) { return x + y; });
    for (; i < n; ++i) total += value(AtOne<T>{i});
    return total;
  }

  // The largest array[i], at least `start`; NaNs are ignored.
  template <class T, class Stored>
  [[gnu::always_inline]] static inline T max(int64_t n, T start, const Stored* array) {
    using Vectors = At<T>;
    constexpr int64_t kLanes = Simd<T>::kLanes;
    T most = start;
    int64_t i = 0;
    if (n >= kLanes) {
      typename Simd<T>::Vector a = start - typename Simd<T>::Vector{};
      typename Simd<T>::Vector b = a;
      for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        const auto x = Vectors{i}(array);
        const auto y = Vectors{i + kLanes}(array);
        a = x > a ? x : a;
        b = y > b ? y : b;
      }
      for (; i + kLanes <= n; i += kLanes) {
        const auto x = Vectors{i}(array);
        a = x > a ? x : a;
      }
      a = b > a ? b : a;
      most = fold<T>(a, [](auto x, auto y) { return y > x ? y : x; });
    }
    for (; i < n; ++i) {
      const T x = AtOne<T>{i}(array);
      most = x > most ? x : most;
    }
    return most;
  }

  // The sum over i in [0, n) of value(i) in f64.
  template <class Value>
  [[gnu::always_inline]] static inline double sum_in_f64(int64_t n, Value value) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += value(i);
    return total;
  }
};

}  // namespace
}  // namespace trifold::cpu
