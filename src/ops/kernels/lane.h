// Lane: the group of one CPU thread. A row functor asks its group to walk a row (`each`), and to reduce over
// it
// (`sum`, `max`); another back end's group would do the same with a warp or a block.
//
// Every function in this folder has internal linkage: this code is compiled once per instruction set, and a
// function with external linkage would be merged by the linker into whichever copy it saw first. For the same
// reason nothing here includes a header with inline functions, the standard library's included. tests/house
// checks the result.
#pragma once

#include <cstdint>

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): see above

struct Lane {
  // body(i) for i in [0, n), in any order.
  template <class Body>
  [[gnu::always_inline]] static inline void each(int64_t n, Body body) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) body(i);
  }

  // The sum of value(i), by vector lanes: the order is fixed by n alone.
  template <class T, class Value>
  [[gnu::always_inline]] static inline T sum(int64_t n, Value value) {
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += value(i);
    return total;
  }

  // The largest value(i), at least `start`; NaNs are passed over.
  template <class T, class Value>
  [[gnu::always_inline]] static inline T max(int64_t n, T start, Value value) {
    T most = start;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; ++i) {
      const T candidate = value(i);
      most = candidate > most ? candidate : most;
    }
    return most;
  }
};

}  // namespace
}  // namespace trifold::cpu
