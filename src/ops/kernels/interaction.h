// Pairwise dot products of the vectors of a sample, and their backward: small symmetric products, one sample
// at a time in first-level cache.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/product.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// With V the F vectors of a sample as a matrix, Z = V V^T. V^T is stored first, its rows padded to whole
// registers; then rows of Z are computed a few at a time, each up to its diagonal.
template <class T>
void dot_interaction(T* y, const T* x, int64_t rows, int64_t vectors, int64_t width, bool self, T* scratch) {
  const int64_t padded = padded_vectors(vectors);
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  T* transposed = scratch;          // [width, padded]
  T* z = scratch + padded * width;  // [kTileRows, padded]
  for (int64_t d = 0; d < width; ++d)
    for (int64_t i = vectors; i < padded; ++i) transposed[d * padded + i] = 0;
  for (int64_t b = 0; b < rows; ++b) {
    const T* v = x + b * vectors * width;
    T* out = y + b * (width + pairs);
    for (int64_t i = 0; i < vectors; ++i)
      for (int64_t d = 0; d < width; ++d) transposed[d * padded + i] = v[i * width + d];
    for (int64_t d = 0; d < width; ++d) out[d] = v[d];
    out += width;
    for (int64_t first = 0; first < vectors; first += kTileRows) {
      const int64_t count = vectors - first < kTileRows ? vectors - first : kTileRows;
      // Up to the diagonal of the last row of the tile, in whole registers.
      const int64_t lanes = Simd<T>::kLanes;
      const int64_t columns = (first + count + lanes - 1) / lanes * lanes;
      product(z, padded, Left<T>{v + first * width, width, 1}, transposed, padded, count, columns, width,
              T(1), false);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t length = first + r + (self ? 1 : 0);
        for (int64_t j = 0; j < length; ++j) out[j] = z[r * padded + j];
        out += length;
      }
    }
  }
}

// dV = (S + S^T) V for the lower triangle S of dZ, plus the first vector's own gradient.
template <class T>
void dot_interaction_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t vectors, int64_t width,
                              bool self, T* scratch) {
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
