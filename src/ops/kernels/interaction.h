// Pairwise dot products of the vectors of a sample, and their backward: small symmetric products, one sample
// at a time in first-level cache.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/product.h"
#include "ops/kernels/transpose.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Calls body<rows>(), for 1 to kTileRows rows.
template <int Rows = kTileRows, class Body>
[[gnu::always_inline]] inline void with_rows(int64_t rows, Body body) {
  if constexpr (Rows == 1) {
    body.template operator()<1>();
  } else {
    if (rows == Rows) return body.template operator()<Rows>();
    with_rows<Rows - 1>(rows, body);
  }
}

// out[0, length) = from[0, length), in whole registers: elements after `length`, up to `end`, may be overwritten.
template <class T>
[[gnu::always_inline]] inline void copy_row(T* out, const T* end, const T* from, int64_t length) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  int64_t at = 0;
  for (; at < length && out + at + kLanes <= end; at += kLanes)
    __builtin_memcpy(out + at, from + at, kVectorBytes);
  for (; at < length; ++at) out[at] = from[at];
}

// out[width, padded] = the transpose of v[vectors, width], followed by columns of zeros. `padded` is a multiple of the
// lanes.
template <class T>
[[gnu::always_inline]] inline void transpose_vectors(T* out, const T* v, int64_t vectors, int64_t width,
                                                     int64_t padded) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  if (width % kLanes == 0) {
    for (int64_t i = 0; i < padded; i += kLanes) {
      const int64_t count = vectors - i < kLanes ? vectors - i : kLanes;
      for (int64_t d = 0; d < width; d += kLanes)
        transpose_square(out + d * padded + i, padded, v + i * width + d, width, count);
    }
    return;
  }
  for (int64_t d = 0; d < width; ++d) {
    for (int64_t i = 0; i < vectors; ++i) out[d * padded + i] = v[i * width + d];
    for (int64_t i = vectors; i < padded; ++i) out[d * padded + i] = 0;
  }
}

// With V the F vectors of a sample as a matrix, Z = V V^T. V^T is stored first, its rows padded to whole
// registers; then rows of Z are computed a few at a time, each up to its diagonal.
template <class T>
void dot_interaction(T* y, const T* x, int64_t rows, int64_t vectors, int64_t width, bool self, T* scratch) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  const int64_t padded = padded_vectors(vectors);
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  T* transposed = scratch;          // [width, padded]
  T* z = scratch + padded * width;  // [kTileRows, padded]
  for (int64_t b = 0; b < rows; ++b) {
    const T* v = x + b * vectors * width;
    T* out = y + b * (width + pairs);
    transpose_vectors(transposed, v, vectors, width, padded);
    Lane::each(width, [=](int64_t d) { out[d] = v[d]; });
    out += width;
    const T* end = out + pairs;
    for (int64_t first = 0; first < vectors; first += kTileRows) {
      const int64_t count = vectors - first < kTileRows ? vectors - first : kTileRows;
      const Left<T> left{v + first * width, width, 1};
      with_rows(count, [=]<int Rows>() {
        // Up to the diagonal of the last row of the tile.
        int64_t c = 0;
        for (; c + kLanes < first + count; c += 2 * kLanes)
          tile<Rows, 2>(z + c, padded, left, transposed + c, padded, width, T(1), false);
        if (c < first + count) tile<Rows, 1>(z + c, padded, left, transposed + c, padded, width, T(1), false);
      });
      for (int64_t r = 0; r < count; ++r) {
        const int64_t length = first + r + (self ? 1 : 0);
        copy_row(out, end, z + r * padded, length);
        out += length;
      }
    }
  }
}

// The symmetric matrix S + S^T of a sample, S being the lower triangle of dZ, row by row as in dy.
template <class T>
struct PairGradients {
  const T* lower;
  bool self;

  const T* row(int64_t i) const { return lower + (self ? i * (i + 1) / 2 : i * (i - 1) / 2); }
  T at(int64_t i, int64_t k) const {
    if (i == k) return self ? 2 * row(i)[i] : T(0);
    return i > k ? row(i)[k] : row(k)[i];
  }
};

// Computes rows [first, first + Rows) of (S + S^T) V for Vectors * lanes columns. The factors of a row are read from a
// row of S to the left of the diagonal block, and from a column of S to the right of it.
template <int Rows, int Vectors, class T>
[[gnu::always_inline]] inline void gradient_tile(T* out, const PairGradients<T>& gradients, const T* v,
                                                 int64_t first, int64_t vectors, int64_t width) {
  using Vector = typename Simd<T>::Vector;
  constexpr int64_t kLanes = Simd<T>::kLanes;
  Vector sum[Rows][Vectors] = {};
  const auto add = [&](int64_t k, auto factor) __attribute__((always_inline)) {
    Vector right[Vectors];
    for (int n = 0; n < Vectors; ++n) right[n] = load_vector<T>(v + k * width + n * kLanes);
    for (int r = 0; r < Rows; ++r)
      for (int n = 0; n < Vectors; ++n) sum[r][n] += factor(r) * right[n];
  };
  const T* rows[Rows];
  T block[Rows][Rows];
  for (int r = 0; r < Rows; ++r) {
    rows[r] = gradients.row(first + r);
    for (int k = 0; k < r; ++k) block[r][k] = block[k][r] = rows[r][first + k];
    block[r][r] = gradients.at(first + r, first + r);
  }
  for (int64_t k = 0; k < first; ++k) add(k, [&](int r) { return rows[r][k]; });
  for (int k = 0; k < Rows; ++k) add(first + k, [&](int r) { return block[r][k]; });
  for (int64_t k = first + Rows; k < vectors; ++k) {
    const T* column = gradients.row(k) + first;
    add(k, [=](int r) { return column[r]; });
  }
  for (int r = 0; r < Rows; ++r)
    for (int n = 0; n < Vectors; ++n)
      __builtin_memcpy(out + (first + r) * width + n * kLanes, &sum[r][n], kVectorBytes);
}

// dV = (S + S^T) V, plus the direct gradient of the first vector, for vectors of whole registers. S is read in place.
template <class T>
void backward_in_registers(T* dx, const T* dy, const T* x, int64_t rows, int64_t vectors, int64_t width,
                           bool self) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  for (int64_t b = 0; b < rows; ++b) {
    const T* v = x + b * vectors * width;
    const T* first_gradient = dy + b * (width + pairs);
    const PairGradients<T> gradients{first_gradient + width, self};
    T* out = dx + b * vectors * width;
    for (int64_t first = 0; first < vectors; first += kTileRows) {
      const int64_t count = vectors - first < kTileRows ? vectors - first : kTileRows;
      with_rows(count, [=]<int Rows>() {
        int64_t c = 0;
        for (; c + 2 * kLanes <= width; c += 2 * kLanes)
          gradient_tile<Rows, 2>(out + c, gradients, v + c, first, vectors, width);
        if (c < width) gradient_tile<Rows, 1>(out + c, gradients, v + c, first, vectors, width);
      });
    }
    Lane::each(width, [=](int64_t d) { out[d] += first_gradient[d]; });
  }
}

// The backward pass for vectors of any width: in registers, or by way of the matrix S + S^T in scratch. The two round
// differently.
template <class T>
void dot_interaction_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t vectors, int64_t width,
                              bool self, T* scratch) {
  if (width % Simd<T>::kLanes == 0) return backward_in_registers(dx, dy, x, rows, vectors, width, self);
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  T* s = scratch;  // [vectors, vectors]
  for (int64_t b = 0; b < rows; ++b) {
    const T* v = x + b * vectors * width;
    const T* first_gradient = dy + b * (width + pairs);
    const T* in = first_gradient + width;
    T* out = dx + b * vectors * width;
    for (int64_t i = 0; i < vectors; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        const T g = *in++;
        s[i * vectors + j] = g;
        s[j * vectors + i] = g;
      }
      s[i * vectors + i] = self ? 2 * *in++ : T(0);
    }
    for (int64_t first = 0; first < vectors; first += kTileRows) {
      const int64_t count = vectors - first < kTileRows ? vectors - first : kTileRows;
      product(out + first * width, width, Left<T>{s + first * vectors, vectors, 1}, v, width, count, width,
              vectors, T(1), false);
    }
    for (int64_t d = 0; d < width; ++d) out[d] += first_gradient[d];
  }
}

}  // namespace
}  // namespace trifold::cpu
