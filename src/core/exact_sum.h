// ExactSum: a sum of doubles without rounding. The result depends neither on the order of the additions nor
// on the distribution of the values over threads and ranks.
//
// Every finite double is an integer multiple of 2^-1074 below 2^1024, so one fixed-point number of about 2100
// bits holds any of them, and any sum of up to 2^60 of them (the accumulator of Kulisch; Demmel & Nguyen,
// "Fast reproducible floating-point summation", ARITH 2013). It is stored as limbs: 64-bit integers, each of
// which counts 32 bits of the fixed-point number, so that the spare bits absorb carries for a while. An
// addition touches three limbs.
//
// Infinities and NaNs are counted separately. If there are any, they decide the value: NaN if there is a NaN
// or infinities of both signs, otherwise the infinity. A sum of finite numbers is infinite only if the exact
// sum is beyond the largest double.
//
// Sums over ranks: limbs() returns integers that may be added limb by limb, over up to 2^30 ranks, and then
// passed to add_limbs(). So one all_reduce(Sum) of kLimbs I64 elements for each sum is enough:
//
//   copy sum.limbs() into a row of an I64 tensor; all_reduce(Sum); total.add_limbs(row); total.value()
//
// Equal sums have equal limbs(), whatever the order of the additions. An ExactSum is a plain value and may be copied.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/exact_digits.h"

namespace trifold {

class ExactSum {
 public:
  static constexpr int kLimbs = kExactLimbs;
  using Limbs = std::array<int64_t, kLimbs>;

  ExactSum() = default;

  void add(double value);
  void add(std::span<const double> values);
  void add(const ExactSum& other);

  // The state, unique for the exact sum. It stays valid until the next addition.
  const Limbs& limbs();
  // Adds the state of another sum, or the limb-by-limb sum of several states. Throws unless there are kLimbs limbs.
  void add_limbs(std::span<const int64_t> limbs);

  // The double nearest to the exact sum, ties to even. An empty sum, and a sum that cancels, is +0.
  double value() const;

 private:
  void carry();

  Limbs limbs_{};        // digits from the lowest up, then the counts of +infinity, -infinity and NaN
  int64_t pending_ = 0;  // additions since the last carry: they bound how far limbs have grown
};

}  // namespace trifold
