// Update rules, each one pass over the elements, and sums of squares by chunk.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/storage.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Sixteen parallel sums, in vectors of a width that does not depend on the instruction set, so neither does
// the order of the additions. The square of an f32 is exact in f64, so f32 gives the same bits on every
// instruction set; squares of f64 are rounded if there is no fused multiply-add.
struct SquareSum {
  static constexpr int64_t kWidth = 8;
  using Eight [[gnu::vector_size(kWidth * sizeof(double))]] = double;

  Eight low{}, high{};

  template <class T>
  [[gnu::always_inline]] inline void add(const T* x) {
    using Input [[gnu::vector_size(kWidth * sizeof(T))]] = T;
    Input a, b;
    __builtin_memcpy(&a, x, sizeof(a));
    __builtin_memcpy(&b, x + kWidth, sizeof(b));
    const Eight first = __builtin_convertvector(a, Eight);
    const Eight second = __builtin_convertvector(b, Eight);
    low += first * first;
    high += second * second;
  }

  [[gnu::always_inline]] inline double total() const {
    const Eight sum = low + high;
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  }
};

// The sum of squares of x[0, n), padded with zeros to whole steps.
template <class T>
[[gnu::always_inline]] inline double square_sum(const T* x, int64_t n) {
  constexpr int64_t kStep = 2 * SquareSum::kWidth;
  SquareSum sum;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) sum.add(x + i);
  if (i < n) {
    T rest[kStep] = {};
    for (int64_t k = 0; i + k < n; ++k) rest[k] = x[i + k];
    sum.add(rest);
  }
  return sum.total();
}

template <class T>
void chunk_squares(double* partials, const T* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kSquaresChunk) {
    const int64_t left = n - begin;
    partials[begin / kSquaresChunk] = square_sum(x + begin, left < kSquaresChunk ? left : kSquaresChunk);
  }
}

template <class T, class To, class Updated>
[[gnu::always_inline]] inline void update_both(T* p, To* copy, int64_t n, Updated updated) {
  Lane::each(n, [=](int64_t i) {
    const T weight = updated(i);
    p[i] = weight;
    put(copy[i], weight);
  });
}

// p[i] = updated(i) for i in [0, n), also written to `copy`. `updated` is called in several places, and must
// be inlined in all of them for loops to vectorise.
template <class T, class Updated>
[[gnu::always_inline]] inline void update_weights(T* p, WeightCopy copy, int64_t n, Updated updated) {
  if (copy.type == CopyType::None) Lane::each(n, [=](int64_t i) { p[i] = updated(i); });
  if (copy.type == CopyType::Same) update_both(p, static_cast<T*>(copy.to), n, updated);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (copy.type == CopyType::Bfloat16) update_both(p, static_cast<Bfloat16*>(copy.to), n, updated);
    if (copy.type == CopyType::Float16) update_both(p, static_cast<Float16*>(copy.to), n, updated);
  }
}

template <class T>
void adamw(T* p, WeightCopy copy, T* m, T* v, const T* g, int64_t n, const AdamWRule& rule) {
  const AdamWStep<T> step(rule);
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        T first = m[i];
        T second = v[i];
        const T weight = step(p[i], first, second, g[i]);
        m[i] = first;
        v[i] = second;
        return weight;
      });
}

template <class T>
void sgd(T* p, WeightCopy copy, T* b, const T* g, int64_t n, const SgdRule& rule) {
  const SgdStep<T> step(rule);
  if (b == nullptr) {
    update_weights(
        p, copy, n, [=](int64_t i) __attribute__((always_inline)) { return step(p[i], g[i]); });
    return;
  }
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        T velocity = b[i];
        const T weight = step(p[i], velocity, g[i]);
        b[i] = velocity;
        return weight;
      });
}

template <class T>
void adagrad(T* p, WeightCopy copy, T* s, const T* g, int64_t n, const AdagradRule& rule) {
  const AdagradStep<T> step(rule);
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        T sum = s[i];
        const T weight = step(p[i], sum, g[i]);
        s[i] = sum;
        return weight;
      });
}

template <class T>
void lamb_moments(double* p_squares, double* u_squares, T* m, T* v, const T* p, const T* g, int64_t n,
                  const LambRule& rule) {
  const LambDirection<T> direction(rule);
  T u[kSquaresChunk];
  for (int64_t begin = 0; begin < n; begin += kSquaresChunk) {
    const int64_t width = n - begin < kSquaresChunk ? n - begin : kSquaresChunk;
    Lane::each(width, [=, &u](int64_t k) {
      const int64_t i = begin + k;
      T first = m[i];
      T second = v[i];
      direction.moments.move(first, second, g[i]);
      m[i] = first;
      v[i] = second;
      u[k] = direction(p[i], first, second);
    });
    p_squares[begin / kSquaresChunk] = square_sum(p + begin, width);
    u_squares[begin / kSquaresChunk] = square_sum(u, width);
  }
}

template <class T>
void lamb(T* p, WeightCopy copy, const T* m, const T* v, int64_t n, const LambRule& rule) {
  const LambDirection<T> direction(rule);
  const auto step_size = T(rule.step_size);
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        return p[i] - step_size * direction(p[i], m[i], v[i]);
      });
}

}  // namespace
}  // namespace trifold::cpu
