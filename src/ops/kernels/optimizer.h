// Update rules, each one pass over the memory of some elements, and sums of squares by chunk.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"
#include "ops/kernels/storage.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Sixteen sums side by side, in vectors of a width that does not depend on the instruction set, so that the
// order of the additions does not either. The square of an f32 is exact in f64, so f32 gives the same bits on
// every instruction set; squares of f64 are rounded where there is no fused multiply-add.
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

// The sum of squares of at most kChunk numbers; places beyond the last count as zeros.
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

// p[i] = updated(i) for i in [0, n), written a second time to `copy`. `updated` has several places to be
// inlined in, and must be in all of them for loops to become vector code.
template <class T, class Updated>
[[gnu::always_inline]] inline void update_weights(T* p, WeightCopy copy, int64_t n, Updated updated) {
  if (copy.type == CopyType::None) Lane::each(n, [=](int64_t i) { p[i] = updated(i); });
  if (copy.type == CopyType::Same) update_both(p, static_cast<T*>(copy.to), n, updated);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (copy.type == CopyType::Bfloat16) update_both(p, static_cast<Bfloat16*>(copy.to), n, updated);
    if (copy.type == CopyType::Float16) update_both(p, static_cast<Float16*>(copy.to), n, updated);
  }
}

// Adam's moments: decaying means of the gradient and its square.
template <class T>
struct Moments {
  T grad_scale, beta1, rest1, beta2, rest2, root_scale, eps;

  explicit Moments(const MomentRule& rule)
      : grad_scale(T(rule.grad_scale)),
        beta1(T(rule.beta1)),
        rest1(T(rule.one_minus_beta1)),
        beta2(T(rule.beta2)),
        rest2(T(rule.one_minus_beta2)),
        root_scale(T(rule.root_scale)),
        eps(T(rule.eps)) {}

  [[gnu::always_inline]] inline void move(T& m, T& v, T g) const {
    const T grad = g * grad_scale;
    m = beta1 * m + rest1 * grad;
    v = beta2 * v + rest2 * grad * grad;
  }
  // The corrected root of the second moment, that directions are divided by.
  [[gnu::always_inline]] inline T root(T v) const { return root_of(v) * root_scale + eps; }
};

template <class T>
void adamw(T* p, WeightCopy copy, T* m, T* v, const T* g, int64_t n, const AdamWRule& rule) {
  const Moments<T> moments(rule.moments);
  const auto decay = T(rule.decay);
  const auto step_size = T(rule.step_size);
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        T first = m[i];
        T second = v[i];
        moments.move(first, second, g[i]);
        m[i] = first;
        v[i] = second;
        return p[i] * decay - step_size * first / moments.root(second);
      });
}

template <class T>
void sgd(T* p, WeightCopy copy, T* b, const T* g, int64_t n, const SgdRule& rule) {
  const auto grad_scale = T(rule.grad_scale);
  const auto weight_decay = T(rule.weight_decay);
  const auto momentum = T(rule.momentum);
  const auto lr = T(rule.lr);
  if (b == nullptr) {
    update_weights(
        p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
          return p[i] - lr * (g[i] * grad_scale + weight_decay * p[i]);
        });
    return;
  }
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        const T velocity = momentum * b[i] + (g[i] * grad_scale + weight_decay * p[i]);
        b[i] = velocity;
        return p[i] - lr * velocity;
      });
}

template <class T>
void adagrad(T* p, WeightCopy copy, T* s, const T* g, int64_t n, const AdagradRule& rule) {
  const auto grad_scale = T(rule.grad_scale);
  const auto weight_decay = T(rule.weight_decay);
  const auto eps = T(rule.eps);
  const auto lr = T(rule.lr);
  update_weights(
      p, copy, n, [=](int64_t i) __attribute__((always_inline)) {
        const T grad = g[i] * grad_scale + weight_decay * p[i];
        const T sum = s[i] + grad * grad;
        s[i] = sum;
        return p[i] - lr * grad / (root_of(sum) + eps);
      });
}

// Both phases of LAMB take the direction from here.
template <class T>
struct LambDirection {
  Moments<T> moments;
  T first_scale, weight_decay;

  explicit LambDirection(const LambRule& rule)
      : moments(rule.moments), first_scale(T(rule.first_scale)), weight_decay(T(rule.weight_decay)) {}

  [[gnu::always_inline]] inline T operator()(T p, T m, T v) const {
    return m * first_scale / moments.root(v) + weight_decay * p;
  }
};

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
