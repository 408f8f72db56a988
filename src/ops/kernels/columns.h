// Sums over the rows of a matrix, in two stages of fixed extent: kRowChunk rows at a time are summed in T,
// the type of the totals (few enough that rounding errors stay small), and the chunks' sums are added in f64.
// A column is summed by one worker, so the order does not depend on the number of workers.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

constexpr int64_t kStripWidth = 64;

// accumulate(r, c, width, a, b) must add row r's terms for columns [c, c + width) to a[0, width) and, if Sums is 2, to
// b[0, width). Adds the sums over all rows of a to total_a and of b to total_b, for columns [begin, end).
template <int Sums, class T, class Accumulate>
[[gnu::always_inline]] inline void sum_columns(int64_t rows, int64_t begin, int64_t end,
                                               Accumulate accumulate, T* total_a, T* total_b) {
  for (int64_t c = begin; c < end; c += kStripWidth) {
    const int64_t width = end - c < kStripWidth ? end - c : kStripWidth;
    double sums[Sums][kStripWidth] = {};
    for (int64_t r = 0; r < rows; r += kRowChunk) {
      const int64_t stop = r + kRowChunk < rows ? r + kRowChunk : rows;
      T part[Sums][kStripWidth] = {};
      // A constant trip count lets the partial sums stay in registers.
      if (width == kStripWidth) {
        for (int64_t i = r; i < stop; ++i) accumulate(i, c, kStripWidth, part[0], part[Sums - 1]);
      } else {
        for (int64_t i = r; i < stop; ++i) accumulate(i, c, width, part[0], part[Sums - 1]);
      }
      for (int k = 0; k < Sums; ++k)
        for (int64_t i = 0; i < kStripWidth; ++i) sums[k][i] += static_cast<double>(part[k][i]);
    }
    for (int64_t i = 0; i < width; ++i) {
      total_a[c + i] += static_cast<T>(sums[0][i]);
      if constexpr (Sums == 2) total_b[c + i] += static_cast<T>(sums[1][i]);
    }
  }
}

}  // namespace
}  // namespace trifold::cpu
