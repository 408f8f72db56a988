// Maps: one functor per elementwise operation, and the loop that applies it.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"

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

template <class T>
void maximum(T* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(y[i], maximum_of(value(y[i]), value(x[i]))); });
}

template <class T, class Formula>
void activate(T* y, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(y[i], Formula::forward(value(x[i]))); });
}

template <class T, class Formula>
void activate_backward(T* dx, const T* dy, const T* saved, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(dx[i], value(dy[i]) * Formula::slope(value(saved[i]))); });
}

template <class T, class List>
struct ActivationsOf;
template <class T, class... Each>
struct ActivationsOf<T, FormulaList<Each...>> {
  static constexpr ActivationKernels<T> kKernels[] = {{activate<T, Each>, activate_backward<T, Each>}...};
};

// A row of x holds the gate, followed by `up`.
template <class T, class Formula>
void gated(T* y, const T* x, int64_t rows, int64_t columns, const GateRule& rule) {
  const GateNumbers<Accumulate<T>> by(rule);
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * columns;
    const T* up = gate + columns;
    T* out = y + r * columns;
    Lane::each(columns, [=](int64_t c) { put(out[c], Formula::forward(value(gate[c]), value(up[c]), by)); });
  }
}

template <class T, class Formula>
void gated_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t columns, const GateRule& rule) {
  const GateNumbers<Accumulate<T>> by(rule);
  for (int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * columns;
    const T* up = gate + columns;
    const T* grad = dy + r * columns;
    T* dgate = dx + 2 * r * columns;
    T* dup = dgate + columns;
    Lane::each(columns, [=](int64_t c) {
      Accumulate<T> along_gate = 0;
      Accumulate<T> along_up = 0;
      Formula::backward(along_gate, along_up, value(grad[c]), value(gate[c]), value(up[c]), by);
      put(dgate[c], along_gate);
      put(dup[c], along_up);
    });
  }
}

template <class T, class List>
struct GatesOf;
template <class T, class... Each>
struct GatesOf<T, FormulaList<Each...>> {
  static constexpr GateKernels<T> kKernels[] = {{gated<T, Each>, gated_backward<T, Each>}...};
};

}  // namespace
}  // namespace trifold::cpu
