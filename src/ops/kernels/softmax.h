// Softmax and its logarithm over rows. Exponentials of a chunk stay in the first-level cache; a longer row computes its
// exponentials twice rather than storing them.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

constexpr int64_t kSoftmaxChunk = 1024;

// The maximum of a row, at least the lowest finite number, and the sum of exp(x - maximum).
template <class Wide>
struct RowStatistics {
  Wide most;
  Wide total;
};

// Leaves the exponentials of the row's last chunk in `exponentials` [kSoftmaxChunk].
template <class T>
[[gnu::always_inline]] inline RowStatistics<Accumulate<T>> row_statistics(const T* x, int64_t columns,
                                                                          Accumulate<T>* exponentials) {
  using Wide = Accumulate<T>;
  const Wide most = Lane::max(columns, kLowest<Wide>, x);
  Wide total = 0;
  for (int64_t c = 0; c < columns; c += kSoftmaxChunk) {
    const int64_t n = columns - c < kSoftmaxChunk ? columns - c : kSoftmaxChunk;
    Lane::each(n, [=](int64_t i) { exponentials[i] = exp_of(value(x[c + i]) - most); });
    total += Lane::sum<Wide>(n, [=](auto at) { return at(exponentials); });
  }
  return {most, total};
}

template <class T>
void softmax(T* y, const T* x, int64_t rows, int64_t columns) {
  using Wide = Accumulate<T>;
  Wide exponentials[kSoftmaxChunk];
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const auto [most, total] = row_statistics(in, columns, exponentials);
    const Wide share = total == 0 ? Wide(0) : 1 / total;
    if (columns <= kSoftmaxChunk) {
      Lane::each(columns, [&, share = share](int64_t c) { put(out[c], exponentials[c] * share); });
    } else {
      Lane::each(columns, [=, most = most](int64_t c) { put(out[c], exp_of(value(in[c]) - most) * share); });
    }
  }
}

template <class T>
void softmax_backward(T* dx, const T* dy, const T* y, int64_t rows, int64_t columns) {
  using Wide = Accumulate<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T* grad = dy + r * columns;
    const T* probability = y + r * columns;
    T* out = dx + r * columns;
    const Wide mean = Lane::sum<Wide>(columns, [=](auto at) { return at(grad) * at(probability); });
    Lane::each(columns, [=](int64_t c) { put(out[c], value(probability[c]) * (value(grad[c]) - mean)); });
  }
}

template <class T>
void log_softmax(T* y, const T* x, int64_t rows, int64_t columns) {
  using Wide = Accumulate<T>;
  Wide exponentials[kSoftmaxChunk];
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const auto [most, total] = row_statistics(in, columns, exponentials);
    const Wide log_total = log_of(total);
    Lane::each(columns, [=, most = most](int64_t c) { put(out[c], value(in[c]) - most - log_total); });
  }
}

template <class T>
void log_softmax_backward(T* dx, const T* dy, const T* y, int64_t rows, int64_t columns) {
  using Wide = Accumulate<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T* grad = dy + r * columns;
    const T* log_probability = y + r * columns;
    T* out = dx + r * columns;
    const Wide total = Lane::sum<Wide>(columns, [=](auto at) { return at(grad); });
    Lane::each(columns,
               [=](int64_t c) { put(out[c], value(grad[c]) - exp_of(value(log_probability[c])) * total); });
  }
}

}  // namespace
}  // namespace trifold::cpu
