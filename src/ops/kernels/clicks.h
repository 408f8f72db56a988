// The elementwise parts of recommender models: bias and ReLU of a product, cross layers, the loss of clicks.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/columns.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void bias_relu(T* c, int64_t c_stride, const T* bias, int64_t m, int64_t n, bool relu) {
  for (int64_t r = 0; r < m; ++r) {
    T* row = c + r * c_stride;
    if (relu) {
      // Not `> 0 ? x : 0`: NaNs must be kept.
      Lane::each(n, [=](int64_t i) {
        const Accumulate<T> x = value(row[i]) + value(bias[i]);
        put(row[i], x < 0 ? Accumulate<T>(0) : x);
      });
    } else {
      Lane::each(n, [=](int64_t i) { put(row[i], value(row[i]) + value(bias[i])); });
    }
  }
}

// Row by row, as the three matrices lie in memory; a chunk's sums stay in first-level cache.
template <class T>
void relu_backward(T* dx, Accumulate<T>* sums, const T* dy, const T* y, int64_t rows, int64_t columns) {
  using Wide = Accumulate<T>;
  for (int64_t first = 0; first < rows; first += kRowChunk, sums += columns) {
    const int64_t stop = first + kRowChunk < rows ? first + kRowChunk : rows;
    for (int64_t c = 0; c < columns; ++c) sums[c] = 0;
    for (int64_t at = first * columns; at < stop * columns; at += columns)
      Lane::each(columns, [=](int64_t i) {
        const Wide d = value(y[at + i]) > 0 ? value(dy[at + i]) : Wide(0);
        put(dx[at + i], d);
        sums[i] += d;
      });
  }
}

template <class T>
void cross(T* y, const T* x0, const T* u, const T* x, int64_t n) {
  Lane::each(n, [=](int64_t i) { put(y[i], value(x0[i]) * value(u[i]) + value(x[i])); });
}

template <class T>
void cross_backward(T* du, T* dx0, const T* dy, const T* x0, const T* u, int64_t n) {
  Lane::each(n, [=](int64_t i) {
    const Accumulate<T> d = value(dy[i]);
    put(du[i], d * value(x0[i]));
    put(dx0[i], value(dx0[i]) + d * value(u[i]));
  });
}

template <class T>
void sigmoid(T* p, const T* z, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = sigmoid_of(z[i]);
}

template <class T>
void inverse_root(T* y, const T* x, double eps, int64_t n) {
  const InverseRoot<T> root{static_cast<T>(eps)};
  Lane::each(n, [=](int64_t i) { y[i] = root(x[i]); });
}

template <class T>
void click_loss(T* loss, const T* z, const float* labels, int64_t n, bool squared) {
  for (int64_t i = 0; i < n; ++i) loss[i] = Click::loss(z[i], T(labels[i]), squared);
}

template <class T>
void click_loss_backward(T* dz, const T* z, const float* labels, const float* weight, double scale, int64_t n,
                         bool squared) {
  const T factor = static_cast<T>(scale);
  for (int64_t i = 0; i < n; ++i) dz[i] = T(weight[i]) * factor * Click::slope(z[i], T(labels[i]), squared);
}

}  // namespace
}  // namespace trifold::cpu
