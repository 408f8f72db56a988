// Small matrix products, one tile of registers at a time, for attention: too small for calls of a library, and under a
// causal mask every tile can stop at the diagonal.
#pragma once

#include <cstdint>

#include "ops/kernels/simd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// A tile is kTileRows x 2 vectors of sums: enough to hide the latency of a fused multiply-add, few enough for
// the register file of the instruction set.
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;

// The left operand: element (row, k) is data[row * row_stride + k * k_stride], so that transposing it is
// free.
template <class T>
struct Left {
  const T* data;
  int64_t row_stride;
  int64_t k_stride;
};

// c[Rows, Vectors * lanes] = alpha * left * right, added to c if `add`. right is [depth, at least Vectors * lanes].
template <int Rows, int Vectors, class T>
[[gnu::always_inline]] inline void tile(T* c, int64_t c_stride, Left<T> left, const T* right,
                                        int64_t right_stride, int64_t depth, T alpha, bool add) {
  using Vector = typename Simd<T>::Vector;
  constexpr int64_t kLanes = Simd<T>::kLanes;
  Vector sum[Rows][Vectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[Vectors];
    for (int v = 0; v < Vectors; ++v)
      __builtin_memcpy(&row[v], right + k * right_stride + v * kLanes, kVectorBytes);
    for (int r = 0; r < Rows; ++r) {
      const T factor = left.data[r * left.row_stride + k * left.k_stride];
      for (int v = 0; v < Vectors; ++v) sum[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) {
      T* out = c + r * c_stride + v * kLanes;
      Vector value = sum[r][v] * alpha;
      if (add) {
        Vector old;
        __builtin_memcpy(&old, out, kVectorBytes);
        value += old;
      }
      __builtin_memcpy(out, &value, kVectorBytes);
    }
}

// `tile` for `rows` rows, at most kTileRows.
template <int Vectors, class T>
inline void tile_rows(T* c, int64_t c_stride, Left<T> left, const T* right, int64_t right_stride,
                      int64_t rows, int64_t depth, T alpha, bool add) {
  if (rows == kTileRows)
    return tile<kTileRows, Vectors>(c, c_stride, left, right, right_stride, depth, alpha, add);
  for (int64_t r = 0; r < rows; ++r) {
    tile<1, Vectors>(c, c_stride, left, right, right_stride, depth, alpha, add);
    c += c_stride;
    left.data += left.row_stride;
  }
}

// c[rows, columns] = alpha * left * right, added to c if `add`; rows <= kTileRows, any number of columns.
template <class T>
inline void product(T* c, int64_t c_stride, Left<T> left, const T* right, int64_t right_stride, int64_t rows,
                    int64_t columns, int64_t depth, T alpha, bool add) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  int64_t at = 0;
  for (; at + 2 * kLanes <= columns; at += 2 * kLanes)
    tile_rows<2>(c + at, c_stride, left, right + at, right_stride, rows, depth, alpha, add);
  for (; at + kLanes <= columns; at += kLanes)
    tile_rows<1>(c + at, c_stride, left, right + at, right_stride, rows, depth, alpha, add);
  for (; at < columns; ++at)
    for (int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += left.data[r * left.row_stride + k * left.k_stride] * right[k * right_stride + at];
      T* out = c + r * c_stride + at;
      *out = add ? *out + sum * alpha : sum * alpha;
    }
}

}  // namespace
}  // namespace trifold::cpu
