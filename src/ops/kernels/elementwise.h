// Maps: one functor per elementwise operation, and the loop that applies it.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void fill(T* y, int64_t n, T value) {
  Lane::each(n, [=](int64_t i) { y[i] = value; });
}

template <class T>
void scale(T* y, int64_t n, T a) {
  Lane::each(n, [=](int64_t i) { y[i] *= a; });
}

template <class T>
void add(T* y, const T* a, const T* b, int64_t n) {
  Lane::each(n, [=](int64_t i) { y[i] = a[i] + b[i]; });
}

// A NaN in x fails the first comparison and is taken; one in y is seen by the second.
template <class T>
void maximum(T* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) {
    const T a = y[i];
    const T most = a > x[i] ? a : x[i];
    y[i] = a != a ? a : most;
  });
}

// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): one exponential, no
// cancellation.
struct Gelu {
  static constexpr double kTwice = 1.5957691216057307117;  // 2 sqrt(2/pi)
  static constexpr double kCubic = 0.044715;

  template <class T>
  [[gnu::always_inline]] static inline T forward(T x) {
    const T twice_u = x * (T(kTwice) + T(kTwice * kCubic) * x * x);
    return x / (1 + exp_of(-twice_u));
  }
  // d/dx x s(2u) = s + x s (1 - s) 2u', s the logistic function.
  template <class T>
  [[gnu::always_inline]] static inline T slope(T x) {
    const T square = x * x;
    const T twice_u = x * (T(kTwice) + T(kTwice * kCubic) * square);
    const T s = 1 / (1 + exp_of(-twice_u));
    return s + s * (1 - s) * x * (T(kTwice) + T(3 * kTwice * kCubic) * square);
  }
};

template <class T>
void gelu(T* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { y[i] = Gelu::forward(x[i]); });
}

template <class T>
void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { dx[i] = dy[i] * Gelu::slope(x[i]); });
}

}  // namespace
}  // namespace trifold::cpu
