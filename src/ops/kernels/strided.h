// Copies, conversions and sums of strided views. The loop along the last axis is vectorised where elements are adjacent.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/walk.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Loops along the last axis. Each is a function of its own, because compilers vectorise them only outside the loop over
// the other axes.
template <class Y, class X>
[[gnu::noinline]] void copy_run(Y* y, int64_t y_stride, const X* x, int64_t x_stride, int64_t n) {
  if (y_stride == 1 && x_stride == 1) {
    Lane::each(n, [=](int64_t i) { Move<Y, X>::one(y[i], x[i]); });
  } else if (y_stride == 1) {
    for (int64_t i = 0; i < n; ++i) Move<Y, X>::one(y[i], x[i * x_stride]);
  } else {
    for (int64_t i = 0; i < n; ++i) Move<Y, X>::one(y[i * y_stride], x[i * x_stride]);
  }
}

template <class T>
[[gnu::noinline]] void gather_run(Accumulate<T>* to, const T* x, int64_t stride, int64_t n) {
  if (stride == 1) {
    Lane::each(n, [=](int64_t i) { to[i] = value(x[i]); });
  } else if (stride == 0) {
    const Accumulate<T> number = value(*x);
    Lane::each(n, [=](int64_t i) { to[i] = number; });
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = value(x[i * stride]);
  }
}

template <class T>
[[gnu::noinline]] void add_run(double* sums, const T* x, int64_t stride, int64_t n) {
  if (stride == 1) {
    Lane::each(n, [=](int64_t i) { sums[i] += static_cast<double>(value(x[i])); });
  } else {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(value(x[i * stride]));
  }
}

template <class T>
[[gnu::noinline]] double sum_run(const T* x, int64_t stride, int64_t n) {
  if (stride == 1) return Lane::sum_in_f64(n, [=](int64_t i) { return static_cast<double>(value(x[i])); });
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(value(x[i * stride]));
  return total;
}

template <class Y, class X>
void copy_strided(Y* y, const X* x, const StridedWalk<2>& walk, int64_t begin, int64_t end) {
  const int64_t y_stride = walk.strides[0][walk.rank - 1];
  const int64_t x_stride = walk.strides[1][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t, const int64_t* at, int64_t n) {
    copy_run(y + at[0], y_stride, x + at[1], x_stride, n);
  });
}

template <class T>
void gather(Accumulate<T>* to, const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end) {
  const int64_t stride = walk.strides[0][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t first, const int64_t* at, int64_t n) {
    gather_run(to + first, x + at[0], stride, n);
  });
}

template <class T>
void add_strided(double* sums, const T* x, int64_t stride, int64_t n, const StridedWalk<1>& walk,
                 int64_t begin, int64_t end) {
  const int64_t step = walk.strides[0][walk.rank - 1];
  over_runs(walk, begin, end, [=](int64_t, const int64_t* at, int64_t terms) {
    for (int64_t k = 0; k < terms; ++k) add_run(sums, x + at[0] + k * step, stride, n);
  });
}

template <class T>
double sum_strided(const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end) {
  const int64_t stride = walk.strides[0][walk.rank - 1];
  double total = 0;
  over_runs(walk, begin, end,
            [=, &total](int64_t, const int64_t* at, int64_t n) { total += sum_run(x + at[0], stride, n); });
  return total;
}

// The result is computed in the type of computation, as the results of other operations are.
template <class T>
void store_sums(T* y, int64_t stride, const double* sums, int64_t n, double factor, bool accumulate) {
  using Wide = Accumulate<T>;
  const auto sum = [=](int64_t i) { return static_cast<Wide>(factor * sums[i]); };
  if (stride == 1 && accumulate) {
    Lane::each(n, [=](int64_t i) { put(y[i], sum(i) + value(y[i])); });
  } else if (stride == 1) {
    Lane::each(n, [=](int64_t i) { put(y[i], sum(i)); });
  } else {
    for (int64_t i = 0; i < n; ++i) {
      T& out = y[i * stride];
      put(out, accumulate ? sum(i) + value(out) : sum(i));
    }
  }
}

}  // namespace
}  // namespace trifold::cpu
