// Transposes of matrices, a square of registers at a time.
#pragma once

#include <cstdint>

#include "ops/kernels/simd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// a0 b0 a1 b1 ..., from the lower or the upper halves of a and b.
template <bool Upper, class T, class Vector>
[[gnu::always_inline]] inline Vector interleave(const Vector& a, const Vector& b) {
  constexpr int kLanes = sizeof(Vector) / sizeof(T);
  constexpr int kA = Upper ? kLanes / 2 : 0, kB = kA + kLanes;  // where the halves of a and b begin
  if constexpr (kLanes == 16) {
    return __builtin_shufflevector(a, b, kA, kB, kA + 1, kB + 1, kA + 2, kB + 2, kA + 3, kB + 3, kA + 4,
                                   kB + 4, kA + 5, kB + 5, kA + 6, kB + 6, kA + 7, kB + 7);
  } else if constexpr (kLanes == 8) {
    return __builtin_shufflevector(a, b, kA, kB, kA + 1, kB + 1, kA + 2, kB + 2, kA + 3, kB + 3);
  } else if constexpr (kLanes == 4) {
    return __builtin_shufflevector(a, b, kA, kB, kA + 1, kB + 1);
  } else {
    return __builtin_shufflevector(a, b, kA, kB);
  }
}

// Transposes an n x n square of n lanes, in log2 n steps. A step interleaves rows i and i + n / 2: in the binary index
// (row, column) of an element it shifts the row's bits up by one and moves the row's highest bit into the column.
template <class T>
[[gnu::always_inline]] inline void transpose_in_registers(typename Simd<T>::Vector (&rows)[Simd<T>::kLanes]) {
  constexpr int kLanes = Simd<T>::kLanes;
#pragma GCC unroll 4
  for (int done = 1; done < kLanes; done *= 2) {
    typename Simd<T>::Vector next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = interleave<false, T>(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = interleave<true, T>(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

// Writes the transpose of a square of x to a square at `out`. Rows of x from `rows` on are read as zeros.
template <class T>
[[gnu::always_inline]] inline void transpose_square(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                                    int64_t rows = Simd<T>::kLanes) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  typename Simd<T>::Vector square[kLanes] = {};
  if (rows == kLanes) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kLanes; ++r) __builtin_memcpy(&square[r], x + r * x_stride, kVectorBytes);
  } else {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kLanes; ++r)
      if (r < rows) __builtin_memcpy(&square[r], x + r * x_stride, kVectorBytes);
  }
  transpose_in_registers<T>(square);
#pragma GCC unroll 16
  for (int64_t c = 0; c < kLanes; ++c) __builtin_memcpy(out + c * out_stride, &square[c], kVectorBytes);
}

template <class T>
void transpose(T* out, const T* x, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  const int64_t whole = rows - rows % kLanes;
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes)
    for (int64_t r = 0; r < whole; r += kLanes)
      transpose_square(out + c * rows + r, rows, x + r * columns + c, columns);
  // The columns that fill no square, then the rows.
  for (; c < end; ++c)
    for (int64_t r = 0; r < whole; ++r) out[c * rows + r] = x[r * columns + c];
  for (int64_t r = whole; r < rows; ++r)
    for (c = begin; c < end; ++c) out[c * rows + r] = x[r * columns + c];
}

}  // namespace
}  // namespace trifold::cpu
