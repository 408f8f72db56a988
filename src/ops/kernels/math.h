// Scalar functions that compilers can vectorise: exp for f32, and names common to f32 and f64. On a GPU they call its
// library, which is accurate to two units in the last place.
#pragma once

#include <cstdint>

#include "core/hd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
inline constexpr T kLowest = 0;
template <>
inline constexpr float kLowest<float> = -3.40282346638528859812e+38F;
template <>
inline constexpr double kLowest<double> = -1.79769313486231570815e+308;

// 2^n for -126 <= n <= 127.
[[gnu::always_inline]] HD inline float power_of_two(int32_t n) {
  return __builtin_bit_cast(float, (n + 127) << 23);
}

// exp(x) within 1.5 units in the last place; 0 far below, infinity far above, NaN for NaN.
// x = n log 2 + r with n whole and |r| <= log(2)/2. Adding and subtracting 1.5 * 2^23 rounds to a whole
// number and leaves it in the low bits. log 2 is taken in two parts, the first short enough that n times it
// is exact. exp(r) is a polynomial; 2^n is applied as two factors so that results near the ends of the range
// neither overflow nor flush.
[[gnu::always_inline]] HD inline float exp_of(float x) {
#if defined(__CUDA_ARCH__)
  return expf(x);
#else
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  constexpr float kRounder = 12582912.0F;
  const float shifted = x * 1.44269504088896341F + kRounder;
  const float whole = shifted - kRounder;
  const int32_t n = __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRounder);
  float r = x - whole * 0.693359375F;
  r = r - whole * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const int32_t half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
#endif
}
[[gnu::always_inline]] HD inline double exp_of(double x) {
#if defined(__CUDA_ARCH__)
  return exp(x);
#else
  return __builtin_exp(x);
#endif
}

[[gnu::always_inline]] HD inline float log_of(float x) {
#if defined(__CUDA_ARCH__)
  return logf(x);
#else
  return __builtin_logf(x);
#endif
}
[[gnu::always_inline]] HD inline double log_of(double x) {
#if defined(__CUDA_ARCH__)
  return log(x);
#else
  return __builtin_log(x);
#endif
}

[[gnu::always_inline]] HD inline float root_of(float x) {
#if defined(__CUDA_ARCH__)
  return sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
[[gnu::always_inline]] HD inline double root_of(double x) {
#if defined(__CUDA_ARCH__)
  return sqrt(x);
#else
  return __builtin_sqrt(x);
#endif
}

// log(1 + x), also for x far below 1
[[gnu::always_inline]] HD inline float log1p_of(float x) {
#if defined(__CUDA_ARCH__)
  return log1pf(x);
#else
  return __builtin_log1pf(x);
#endif
}
[[gnu::always_inline]] HD inline double log1p_of(double x) {
#if defined(__CUDA_ARCH__)
  return log1p(x);
#else
  return __builtin_log1p(x);
#endif
}

[[gnu::always_inline]] HD inline float cos_of(float x) {
#if defined(__CUDA_ARCH__)
  return cosf(x);
#else
  return __builtin_cosf(x);
#endif
}
[[gnu::always_inline]] HD inline double cos_of(double x) {
#if defined(__CUDA_ARCH__)
  return cos(x);
#else
  return __builtin_cos(x);
#endif
}

[[gnu::always_inline]] HD inline float sin_of(float x) {
#if defined(__CUDA_ARCH__)
  return sinf(x);
#else
  return __builtin_sinf(x);
#endif
}
[[gnu::always_inline]] HD inline double sin_of(double x) {
#if defined(__CUDA_ARCH__)
  return sin(x);
#else
  return __builtin_sin(x);
#endif
}

[[gnu::always_inline]] HD inline float erf_of(float x) {
#if defined(__CUDA_ARCH__)
  return erff(x);
#else
  return __builtin_erff(x);
#endif
}
[[gnu::always_inline]] HD inline double erf_of(double x) {
#if defined(__CUDA_ARCH__)
  return erf(x);
#else
  return __builtin_erf(x);
#endif
}

// x^power
[[gnu::always_inline]] HD inline float power_of(float x, float power) {
#if defined(__CUDA_ARCH__)
  return powf(x, power);
#else
  return __builtin_powf(x, power);
#endif
}
[[gnu::always_inline]] HD inline double power_of(double x, double power) {
#if defined(__CUDA_ARCH__)
  return pow(x, power);
#else
  return __builtin_pow(x, power);
#endif
}

// |x|
[[gnu::always_inline]] HD inline float magnitude_of(float x) {
#if defined(__CUDA_ARCH__)
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
[[gnu::always_inline]] HD inline double magnitude_of(double x) {
#if defined(__CUDA_ARCH__)
  return fabs(x);
#else
  return __builtin_fabs(x);
#endif
}

// tanh(x), with an absolute error of a few roundings of 1: with t = exp(-2|x|), (1 - t) / (1 + t) and the sign of x.
template <class T>
[[gnu::always_inline]] HD inline T tanh_of(T x) {
  const T t = exp_of(x < 0 ? x + x : -(x + x));
  const T size = (1 - t) / (1 + t);
  return x < 0 ? -size : size;
}

// P(x) of the normal distribution, with a relative error of 2e-8 plus the rounding of f32; `bell` is exp(-x^2
// / 2). With t = 1 / (1 + |x| / sqrt(8)), P(-|x|) / bell is t times a smooth function of t in (0, 1],
// approximated by the polynomial of degree 10 with the least squares of relative errors.
[[gnu::always_inline]] HD inline float normal_below(float x, float bell) {
  const float size = x < 0 ? -x : x;
  const float t = 1.0F / (1.0F + size * 0.353553391F);
  float p = 0.0431954332F;
  p = p * t - 0.234733593F;
  p = p * t + 0.493694932F;
  p = p * t - 0.454973988F;
  p = p * t + 0.132177044F;
  p = p * t - 0.0592113576F;
  p = p * t + 0.0934624343F;
  p = p * t + 0.175315976F;
  p = p * t + 0.246884575F;
  p = p * t + 0.282093754F;
  p = p * t + 0.282094795F;
  const float tail = 0.5F * t * p * bell;
  return x < 0 ? tail : 1.0F - tail;
}
[[gnu::always_inline]] HD inline double normal_below(double x, double /*bell*/) {
  constexpr double kRootHalf = 0.70710678118654752440;
#if defined(__CUDA_ARCH__)
  return 0.5 * erfc(-x * kRootHalf);
#else
  return 0.5 * __builtin_erfc(-x * kRootHalf);
#endif
}

template <class T>
[[gnu::always_inline]] HD inline T larger(T a, T b) {
  return a > b ? a : b;
}

}  // namespace
}  // namespace trifold::cpu
