// The scalar formulas of elementwise operations and update rules, which every back end applies to its own vectors,
// warps or blocks.
#pragma once

#include <cstddef>

#include "ops/kernels.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): one exponential, no
// cancellation.
struct Gelu {
  static constexpr double kTwice = 1.5957691216057307117;  // 2 sqrt(2/pi)
  static constexpr double kCubic = 0.044715;

  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T x) {
    const T twice_u = x * (T(kTwice) + T(kTwice * kCubic) * x * x);
    return x / (1 + exp_of(-twice_u));
  }
  // d/dx x s(2u) = s + x s (1 - s) 2u', s the logistic function.
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T x) {
    const T square = x * x;
    const T twice_u = x * (T(kTwice) + T(kTwice * kCubic) * square);
    const T s = 1 / (1 + exp_of(-twice_u));
    return s + s * (1 - s) * x * (T(kTwice) + T(3 * kTwice * kCubic) * square);
  }
};

// x P(x), P the normal distribution.
struct GeluErf {
  static constexpr double kDensity = 0.39894228040143267794;  // 1 / sqrt(2 pi)

  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T x) {
    return x * normal_below(x, exp_of(x * x * T(-0.5)));
  }
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T x) {
    const T bell = exp_of(x * x * T(-0.5));
    return normal_below(x, bell) + x * T(kDensity) * bell;
  }
};

// The square of max(x, 0); NaN if x is.
struct SquaredRelu {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T x) {
    return x < 0 ? T(0) : x * x;
  }
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T x) {
    return x < 0 ? T(0) : 2 * x;
  }
};

// max(x, 0); NaN if x is.
struct Relu {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T x) {
    return x < 0 ? T(0) : x;
  }
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T x) {
    return x <= 0 ? T(0) : T(1);
  }
};

struct Tanh {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T x) {
    return tanh_of(x);
  }
  // The derivative from y = tanh(x).
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T y) {
    return 1 - y * y;
  }
};

template <class A, class B>
inline constexpr bool kSameFormula = false;
template <class A>
inline constexpr bool kSameFormula<A, A> = true;

template <class... Each>
struct FormulaList {
  static constexpr size_t kCount = sizeof...(Each);
  // The index of a formula in the list.
  template <class Formula>
  static constexpr size_t index() {
    size_t place = kCount;
    size_t next = 0;
    ((place = kSameFormula<Formula, Each> ? next : place, ++next), ...);
    return place;
  }
};

// The formulas of the activations (ops/activations.h). Kernels choose one by its index.
using Activations = FormulaList<Gelu, GeluErf, SquaredRelu, Relu, Tanh>;

// The gate g is applied as g s, where s is the logistic function of g: d(g s)/dg = s + g s (1 - s).
struct Swiglu {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T g, T up) {
    return g / (1 + exp_of(-g)) * up;
  }
  template <class T>
  [[gnu::always_inline]] HD static inline void backward(T& dgate, T& dup, T d, T g, T up) {
    const T s = 1 / (1 + exp_of(-g));
    dgate = d * up * (s + g * s * (1 - s));
    dup = d * (g * s);
  }
};

// A GateRule in the type of computation.
template <class T>
struct GateNumbers {
  T slope, limit, offset;

  HD explicit GateNumbers(const GateRule& rule)
      : slope(T(rule.slope)), limit(T(rule.limit)), offset(T(rule.offset)) {}
};

// Gated activations of gate g and up u (Gating of ops.h): the value, and the gradients for d = dy.
struct GatedBySilu {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T g, T u, const GateNumbers<T>&) {
    return Swiglu::forward(g, u);
  }
  template <class T>
  [[gnu::always_inline]] HD static inline void backward(T& dg, T& du, T d, T g, T u, const GateNumbers<T>&) {
    Swiglu::backward(dg, du, d, g, u);
  }
};

template <class Formula>
struct GatedBy {
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T g, T u, const GateNumbers<T>&) {
    return Formula::forward(g) * u;
  }
  template <class T>
  [[gnu::always_inline]] HD static inline void backward(T& dg, T& du, T d, T g, T u, const GateNumbers<T>&) {
    dg = d * u * Formula::slope(g);
    du = d * Formula::forward(g);
  }
};

// Beyond a limit the gradient is 0. NaNs pass all limits.
struct GatedByClampedSilu {
  template <class T>
  [[gnu::always_inline]] HD static inline T clamped(T u, T limit) {
    const T low = u < -limit ? -limit : u;
    return low > limit ? limit : low;
  }
  template <class T>
  [[gnu::always_inline]] HD static inline T forward(T g, T u, const GateNumbers<T>& by) {
    const T gate = g > by.limit ? by.limit : g;
    return gate / (1 + exp_of(-by.slope * gate)) * (clamped(u, by.limit) + by.offset);
  }
  template <class T>
  [[gnu::always_inline]] HD static inline void backward(T& dg, T& du, T d, T g, T u,
                                                        const GateNumbers<T>& by) {
    const T gate = g > by.limit ? by.limit : g;
    const T bounded = clamped(u, by.limit);
    const T s = 1 / (1 + exp_of(-by.slope * gate));
    const T slope = d * (bounded + by.offset) * (s + by.slope * gate * s * (1 - s));
    const T along = d * (gate * s);
    dg = g > by.limit ? T(0) : slope;
    du = bounded == u ? along : u != u ? along : T(0);
  }
};

using Gates = FormulaList<GatedBySilu, GatedBy<Gelu>, GatedBy<GeluErf>, GatedByClampedSilu>;

// The larger of two numbers, NaN if either is: a NaN in b fails the first comparison, so b is taken; a NaN in
// a is caught by the second.
template <class T>
[[gnu::always_inline]] HD inline T maximum_of(T a, T b) {
  const T most = a > b ? a : b;
  return a != a ? a : most;
}

// exp(-|z|) is never above 1, so neither form overflows.
template <class T>
[[gnu::always_inline]] HD inline T sigmoid_of(T z) {
  const T e = exp_of(z < 0 ? z : -z);
  return (z < 0 ? e : T(1)) / (1 + e);
}

template <class T>
struct InverseRoot {
  T eps;
  [[gnu::always_inline]] HD inline T operator()(T x) const { return 1 / root_of(x + eps); }
};

// The loss of a click's logit z, and its derivative.
struct Click {
  template <class T>
  [[gnu::always_inline]] HD static inline T loss(T z, T label, bool squared) {
    if (squared) {
      const T gap = sigmoid_of(z) - label;
      return gap * gap;
    }
    return (z > 0 ? z : T(0)) - z * label + log1p_of(exp_of(z < 0 ? z : -z));
  }
  template <class T>
  [[gnu::always_inline]] HD static inline T slope(T z, T label, bool squared) {
    const T p = sigmoid_of(z);
    const T gap = p - label;
    return squared ? 2 * gap * p * (1 - p) : gap;
  }
};

// The four words of Philox4x32-10 for one counter, as in core/random.h.
struct PhiloxWords {
  uint32_t at[4];
};
[[gnu::always_inline]] HD inline PhiloxWords philox_block(uint32_t lo, uint32_t hi, uint64_t counter) {
  auto x0 = static_cast<uint32_t>(counter);
  auto x1 = static_cast<uint32_t>(counter >> 32);
  uint32_t x2 = 0;
  uint32_t x3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x0;
    const uint64_t b = uint64_t{0xCD9E8D57} * x2;
    x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ lo;
    x1 = static_cast<uint32_t>(b);
    x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ hi;
    x3 = static_cast<uint32_t>(a);
    lo += 0x9E3779B9U;
    hi += 0xBB67AE85U;
  }
  return {{x0, x1, x2, x3}};
}

template <class T>
[[gnu::always_inline]] HD inline T uniform_number(const UniformRule& rule, uint32_t word) {
  return T(rule.low) + T(rule.step) * (T(word) + T(0.5));
}

// The bits of x, an f32, in bf16: rounded up in magnitude if the 16 bits that are dropped exceed the upper half of a random
// `word`, so that the mean is x. Infinite and NaN stay so.
[[gnu::always_inline]] HD inline uint16_t random_bfloat16_bits(float x, uint32_t word) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t added = bits + (word >> 16);
  const bool finite = (bits & 0x7f800000U) != 0x7f800000U;
  const uint32_t nan = (bits & 0x007fffffU) != 0 ? 0x00400000U : 0U;
  return static_cast<uint16_t>((finite ? added : bits | nan) >> 16);
}

// Small floats (SmallFloat of ops.h). A code without its sign, moved to the place of an f32's exponent and mantissa, is the
// number times a power of two; multiplying by that power also makes subnormal numbers right.
[[gnu::always_inline]] HD inline float small_value(uint8_t code, bool is_signed) {
  const uint32_t magnitude = is_signed ? code & 0x7fU : uint32_t{code};
  const float positive = __builtin_bit_cast(float, magnitude << 21) * (is_signed ? 0x1p97F : 0x1p68F);
  const bool nan = code == (is_signed ? 0x80U : 0xffU);
  const uint32_t sign = is_signed ? (code & 0x80U) << 24 : 0U;
  return __builtin_bit_cast(float, nan ? 0x7fc00000U : __builtin_bit_cast(uint32_t, positive) | sign);
}

// The code of x, rounded as random_bfloat16_bits does by the 21 bits that are dropped.
[[gnu::always_inline]] HD inline uint8_t random_small_code(float x, uint32_t word, bool is_signed) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const float magnitude = __builtin_bit_cast(float, bits & 0x7fffffffU);
  const uint32_t scaled = __builtin_bit_cast(uint32_t, magnitude * (is_signed ? 0x1p-97F : 0x1p-68F));
  const uint32_t rounded = (scaled + (word >> 11)) >> 21;
  const uint32_t most = is_signed ? 0x7fU : 0xfeU;
  const uint32_t finite = rounded < most ? rounded : most;
  const bool negative = (bits >> 31) != 0;
  const uint32_t kept =
      is_signed ? (negative && finite != 0 ? finite | 0x80U : finite) : (negative ? 0U : finite);
  const bool is_finite = (bits & 0x7f800000U) != 0x7f800000U;
  return static_cast<uint8_t>(is_finite ? kept : (is_signed ? 0x80U : 0xffU));
}

// The index of the first scale of a row of a quantized matrix.
[[gnu::always_inline]] HD inline int64_t first_scale(const QuantizedRows& form, int64_t row) {
  if (!form.along_columns) return row * form.row_scales;
  return (row / form.matrix_rows * form.bands + row % form.matrix_rows / form.band_rows) * form.row_scales;
}
// The code of element i of a row, whose byte is `pair`; and the values of codes, in units of their scales.
[[gnu::always_inline]] HD inline uint32_t nf4_code(uint8_t pair, int64_t i) {
  return (uint32_t{pair} >> (i % 2 * 4)) & 15U;
}
[[gnu::always_inline]] HD inline float int8_value(uint8_t code) {
  return static_cast<float>(static_cast<int8_t>(code));
}
[[gnu::always_inline]] HD inline float nf4_value(uint32_t code) {
  static constexpr float kValues[16] = {-1.0F,
                                        -0.6961928009986877F,
                                        -0.5250730514526367F,
                                        -0.39491748809814453F,
                                        -0.28444138169288635F,
                                        -0.18477343022823334F,
                                        -0.09105003625154495F,
                                        0.0F,
                                        0.07958029955625534F,
                                        0.16093020141124725F,
                                        0.24611230194568634F,
                                        0.33791524171829224F,
                                        0.44070982933044434F,
                                        0.5626170039176941F,
                                        0.7229568362236023F,
                                        1.0F};
  return kValues[code];
}

// The element of a global tensor that RandomRounding gives to element `at` of a tensor.
[[gnu::always_inline]] HD inline uint64_t global_element(const RandomRoundingRows& rows, int64_t at) {
  const int64_t element = rows.first + at;
  return static_cast<uint64_t>(rows.begin + element / rows.width * rows.stride + element % rows.width);
}

// Adam's moments: decaying means of the gradient and its square.
template <class T>
struct Moments {
  T grad_scale, beta1, rest1, beta2, rest2, root_scale, eps;

  Moments() = default;
  HD explicit Moments(const MomentRule& rule)
      : grad_scale(T(rule.grad_scale)),
        beta1(T(rule.beta1)),
        rest1(T(rule.one_minus_beta1)),
        beta2(T(rule.beta2)),
        rest2(T(rule.one_minus_beta2)),
        root_scale(T(rule.root_scale)),
        eps(T(rule.eps)) {}

  [[gnu::always_inline]] HD inline void move(T& m, T& v, T g) const {
    const T grad = g * grad_scale;
    m = beta1 * m + rest1 * grad;
    v = beta2 * v + rest2 * grad * grad;
  }
  // The bias-corrected root of the second moment, by which directions are divided.
  [[gnu::always_inline]] HD inline T root(T v) const { return root_of(v) * root_scale + eps; }
};

template <class T>
struct AdamWStep {
  Moments<T> moments;
  T decay, step_size;

  HD explicit AdamWStep(const AdamWRule& rule)
      : moments(rule.moments), decay(T(rule.decay)), step_size(T(rule.step_size)) {}

  // Returns the new weight; updates m and v.
  [[gnu::always_inline]] HD inline T operator()(T p, T& m, T& v, T g) const {
    moments.move(m, v, g);
    return p * decay - step_size * m / moments.root(v);
  }
};

template <class T>
struct SgdStep {
  T grad_scale, weight_decay, momentum, lr;

  HD explicit SgdStep(const SgdRule& rule)
      : grad_scale(T(rule.grad_scale)),
        weight_decay(T(rule.weight_decay)),
        momentum(T(rule.momentum)),
        lr(T(rule.lr)) {}

  // Return the new weight, without momentum and with it; the second updates b.
  [[gnu::always_inline]] HD inline T operator()(T p, T g) const {
    return p - lr * (g * grad_scale + weight_decay * p);
  }
  [[gnu::always_inline]] HD inline T operator()(T p, T& b, T g) const {
    b = momentum * b + (g * grad_scale + weight_decay * p);
    return p - lr * b;
  }
};

// `grad` is already scaled. Returns the new weight; adds to s.
template <class T>
struct AdagradMove {
  T eps, lr;

  [[gnu::always_inline]] HD inline T operator()(T p, T& s, T grad) const {
    s += grad * grad;
    return p - lr * grad / (root_of(s) + eps);
  }
};

template <class T>
struct AdagradStep {
  T grad_scale, weight_decay;
  AdagradMove<T> move;

  HD explicit AdagradStep(const AdagradRule& rule)
      : grad_scale(T(rule.grad_scale)), weight_decay(T(rule.weight_decay)), move{T(rule.eps), T(rule.lr)} {}

  // Returns the new weight; adds to s.
  [[gnu::always_inline]] HD inline T operator()(T p, T& s, T g) const {
    return move(p, s, g * grad_scale + weight_decay * p);
  }
};

// `grad` is already scaled. Returns the new weight; updates z and n. Until the first gradient other than 0, n is 0 and
// the weight does not change.
template <class T>
struct FtrlMove {
  T rate, beta, l1, l2;

  FtrlMove() = default;
  HD explicit FtrlMove(const FtrlRule& rule)
      : rate(T(rule.rate)), beta(T(rule.beta)), l1(T(rule.l1)), l2(T(rule.l2)) {}

  [[gnu::always_inline]] HD inline T operator()(T p, T& z, T& n, T grad) const {
    const T before = root_of(n);
    const T from = n == 0 ? -beta * rate * p : z;
    n += grad * grad;
    const T after = root_of(n);
    const T sum = from + grad - (after - before) * rate * p;
    const T beyond = sum > l1 ? sum - l1 : sum < -l1 ? sum + l1 : T(0);
    z = n == 0 ? z : sum;
    return n == 0 ? p : -beyond / ((beta + after) * rate + l2);
  }
};

// The direction of LAMB, used by both phases.
template <class T>
struct LambDirection {
  Moments<T> moments;
  T first_scale, weight_decay;

  HD explicit LambDirection(const LambRule& rule)
      : moments(rule.moments), first_scale(T(rule.first_scale)), weight_decay(T(rule.weight_decay)) {}

  [[gnu::always_inline]] HD inline T operator()(T p, T m, T v) const {
    return m * first_scale / moments.root(v) + weight_decay * p;
  }
};

}  // namespace
}  // namespace trifold::cpu
