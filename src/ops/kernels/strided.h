// Copies, conversions and sums of strided views. The loop along the last axis is vectorised where elements are adjacent.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/walk.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class Y, class X>
void copy_strided(Y* y, const X* x, const StridedWalk<2>& walk, int64_t begin, int64_t end) {
  const int64_t y_stride = walk.strides[0][walk.rank - 1];
  const int64_t x_stride = walk.strides[1][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t, const int64_t* at, int64_t n) {
    Y* to = y + at[0];
    const X* from = x + at[1];
    if (y_stride == 1 && x_stride == 1) {
      Lane::each(n, [=](int64_t i) { Move<Y, X>::one(to[i], from[i]); });
    } else if (y_stride == 1) {
      for (int64_t i = 0; i < n; ++i) Move<Y, X>::one(to[i], from[i * x_stride]);
    } else {
      for (int64_t i = 0; i < n; ++i) Move<Y, X>::one(to[i * y_stride], from[i * x_stride]);
    }
  });
}

template <class T>
void gather(Accumulate<T>* to, const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end) {
  const int64_t stride = walk.strides[0][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t first, const int64_t* at, int64_t n) {
    Accumulate<T>* out = to + first;
    const T* from = x + at[0];
    if (stride == 1) {
      Lane::each(n, [=](int64_t i) { out[i] = value(from[i]); });
    } else if (stride == 0) {
      const Accumulate<T> number = value(*from);
      Lane::each(n, [=](int64_t i) { out[i] = number; });
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = value(from[i * stride]);
    }
  });
}

template <class T>
void add_strided(double* sums, const T* x, int64_t stride, int64_t n, const StridedWalk<1>& walk,
                 int64_t begin, int64_t end) {
  const int64_t step = walk.strides[0][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t, const int64_t* at, int64_t terms) {
    for (int64_t k = 0; k < terms; ++k) {
      const T* from = x + at[0] + k * step;
      if (stride == 1) {
        Lane::each(n, [=](int64_t i) { sums[i] += static_cast<double>(value(from[i])); });
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(value(from[i * stride]));
      }
    }
  });
}

template <class T>
double sum_strided(const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end) {
  const int64_t stride = walk.strides[0][walk.rank - 1];
  double total = 0;
  over_runs(walk, begin, end, [=, &total](int64_t, const int64_t* at, int64_t n) {
    const T* from = x + at[0];
    if (stride == 1) {
      total += Lane::sum_in_f64(n, [=](int64_t i) { return static_cast<double>(value(from[i])); });
    } else {
      for (int64_t i = 0; i < n; ++i) total += static_cast<double>(value(from[i * stride]));
    }
  });
  return total;
}

template <class T>
void store_sums(T* y, int64_t stride, const double* sums, int64_t n, double factor, bool accumulate) {
  if (stride == 1 && accumulate) {
    Lane::each(n, [=](int64_t i) { put_rounded(y[i], factor * sums[i] + static_cast<double>(value(y[i]))); });
  } else if (stride == 1) {
    Lane::each(n, [=](int64_t i) { put_rounded(y[i], factor * sums[i]); });
  } else {
    for (int64_t i = 0; i < n; ++i) {
      T& out = y[i * stride];
      put_rounded(out, factor * sums[i] + (accumulate ? static_cast<double>(value(out)) : 0.0));
    }
  }
}

}  // namespace
}  // namespace trifold::cpu
