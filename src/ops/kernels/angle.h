// Sines and cosines of the angles of rotary position embedding, in f64 and in vector code.
#pragma once

#include <cstdint>

#include "core/hd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <int Terms>
[[gnu::always_inline]] HD inline double power_series(const double (&terms)[Terms], double x) {
  double sum = terms[Terms - 1];
  for (int i = Terms - 2; i >= 0; --i) sum = sum * x + terms[i];
  return sum;
}

// Sine and cosine of an angle of at most 2^20 quarter turns. The nearest number n of quarter turns is found
// by adding 1.5 * 2^52, which leaves it in the low bits too; n * pi/2 is subtracted in three parts of 33 bits
// each, so that n times each is exact. n selects the series and the signs. The series are Taylor's for |x| <=
// pi/4, in powers of x^2: the first omitted term is below 1e-17.
[[gnu::always_inline]] HD inline void sine_and_cosine(double angle, double& sine, double& cosine) {
  constexpr double kSineSeries[] = {
      1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
      1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
  constexpr double kCosineSeries[] = {1.0,
                                      -0.5,
                                      1.0 / 24,
                                      -1.0 / 720,
                                      1.0 / 40320,
                                      -1.0 / 3628800,
                                      1.0 / 479001600,
                                      -1.0 / 87178291200.0,
                                      1.0 / 20922789888000.0};
  constexpr double kRounder = 6755399441055744.0;
  const double shifted = angle * 0.63661977236758134308 + kRounder;
  const double whole = shifted - kRounder;
  const auto quarter = __builtin_bit_cast(int64_t, shifted);
  double r = angle - whole * 0x1.921fb544p+0;
  r = r - whole * 0x1.0b4611a6p-34;
  r = r - whole * 0x1.3198a2e037073p-69;
  const double square = r * r;
  const double s = r * power_series(kSineSeries, square);
  const double c = power_series(kCosineSeries, square);
  const bool odd = (quarter & 1) != 0;
  const double first = odd ? c : s;
  const double second = odd ? s : c;
  sine = (quarter & 2) != 0 ? -first : first;
  cosine = ((quarter + 1) & 2) != 0 ? -second : second;
}

}  // namespace
}  // namespace trifold::cpu
