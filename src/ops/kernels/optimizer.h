// What the optimizer needs of the flat stores: sums of squares by chunk.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Sixteen sums side by side, in vectors of a width that does not depend on the instruction set, so that the
// order of the additions does not either. The square of an f32 is exact in f64, so f32 gives the same bits on
// every instruction set; squares of f64 are rounded where there is no fused multiply-add.
struct SquareSum {
  static constexpr int64_t kWidth = 8;
  using Eight [[gnu::vector_size(kWidth * sizeof(double))]] = double;

  Eight low{}, high{};

  template <class T>
  [[gnu::always_inline]] inline void add(const T* x) {
    using Input [[gnu::vector_size(kWidth * sizeof(T))]] = T;
    Input a, b;
    __builtin_memcpy(&a, x, sizeof(a));
    __builtin_memcpy(&b, x + kWidth, sizeof(b));
    const Eight first = __builtin_convertvector(a, Eight);
    const Eight second = __builtin_convertvector(b, Eight);
    low += first * first;
    high += second * second;
  }

  [[gnu::always_inline]] inline double total() const {
    const Eight sum = low + high;
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  }
};

// The sum of squares of at most kChunk numbers; places beyond the last count as zeros.
template <class T>
[[gnu::always_inline]] inline double square_sum(const T* x, int64_t n) {
  constexpr int64_t kStep = 2 * SquareSum::kWidth;
  SquareSum sum;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) sum.add(x + i);
  if (i < n) {
    T rest[kStep] = {};
    for (int64_t k = 0; i + k < n; ++k) rest[k] = x[i + k];
    sum.add(rest);
  }
  return sum.total();
}

template <class T>
void chunk_squares(double* partials, const T* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kSquaresChunk) {
    const int64_t left = n - begin;
    partials[begin / kSquaresChunk] = square_sum(x + begin, left < kSquaresChunk ? left : kSquaresChunk);
  }
}

}  // namespace
}  // namespace trifold::cpu
