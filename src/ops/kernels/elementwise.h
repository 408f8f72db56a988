// Maps: one functor per elementwise operation, and the loop that applies it.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void fill(T* y, int64_t n, Accumulate<T> number) {
  Lane::each(n, [=](int64_t i) { put(y[i], number); });
}

template <class T>
void to_f32(float* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { y[i] = static_cast<float>(value(x[i])); });
}

template <class T>
void from_f32(T* y, const float* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(y[i], x[i]); });
}

template <class T>
void scale(T* y, int64_t n, Accumulate<T> a) {
  Lane::each(n, [=](int64_t i) { put(y[i], value(y[i]) * a); });
}

template <class T>
void add(T* y, const T* a, const T* b, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(y[i], value(a[i]) + value(b[i])); });
}

// A NaN in x fails the first comparison and is taken; one in y is seen by the second.
template <class T>
void maximum(T* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) {
    const auto a = value(y[i]);
    const auto b = value(x[i]);
    const auto most = a > b ? a : b;
    put(y[i], a != a ? a : most);
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
  Lane::each(n, [=](int64_t i) { put(y[i], Gelu::forward(value(x[i]))); });
}

template <class T>
void gelu_backward(T* dx, const T* dy, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(dx[i], value(dy[i]) * Gelu::slope(value(x[i]))); });
}

// Rows of x hold the gate, then what it is multiplied with.
template <class T>
void swiglu(T* y, const T* x, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * columns;
    const T* up = gate + columns;
    T* out = y + r * columns;
    Lane::each(columns, [=](int64_t c) {
      const auto g = value(gate[c]);
      put(out[c], g / (1 + exp_of(-g)) * value(up[c]));
    });
  }
}

// With s the logistic function of g: d(g s)/dg = s + g s (1 - s).
template <class T>
void swiglu_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * columns;
    const T* up = gate + columns;
    const T* grad = dy + r * columns;
    T* dgate = dx + 2 * r * columns;
    T* dup = dgate + columns;
    Lane::each(columns, [=](int64_t c) {
      const auto g = value(gate[c]);
      const auto d = value(grad[c]);
      const auto s = 1 / (1 + exp_of(-g));
      put(dgate[c], d * value(up[c]) * (s + g * s * (1 - s)));
      put(dup[c], d * (g * s));
    });
  }
}

}  // namespace
}  // namespace trifold::cpu
