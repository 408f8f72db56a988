// ZipfLaw draws rows of a table, a few of which are popular: rank r of [0, rows) has the probability of [r, r + 1) under
// the density (x + 1)^-exponent, and ranks are scattered over the rows by a fixed affine map.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace trifold {

class ZipfLaw {
 public:
  // `exponent` is at least 0; 0: all rows are equally likely.
  ZipfLaw(int64_t rows, double exponent)
      : rows_(rows),
        exponent_(exponent),
        factor_(std::max<int64_t>(1, static_cast<int64_t>(0.6180339887 * static_cast<double>(rows)))),
        shift_(rows / 3),
        top_(unnormalised(static_cast<double>(rows) + 1)) {
    while (std::gcd(factor_, rows_) != 1) ++factor_;
  }

  // The probability of ranks below `rank`: G(r) = ((r + 1)^(1 - s) - 1) / ((n + 1)^(1 - s) - 1), a logarithm where
  // s = 1.
  double share_below(int64_t rank) const { return unnormalised(static_cast<double>(rank) + 1) / top_; }
  // The rank at which G reaches `uniform`, in (0, 1).
  int64_t rank_of(double uniform) const {
    const double at = uniform * top_;
    const double x = exponent_ == 1 ? std::exp(at) : std::pow(1 + at, 1 / (1 - exponent_));
    return std::clamp(static_cast<int64_t>(x - 1), int64_t{0}, rows_ - 1);
  }
  int64_t row_of(int64_t rank) const { return (rank * factor_ + shift_) % rows_; }

 private:
  double unnormalised(double x) const {
    return exponent_ == 1 ? std::log(x) : std::pow(x, 1 - exponent_) - 1;
  }

  int64_t rows_;
  double exponent_;
  int64_t factor_, shift_;  // row = (rank * factor + shift) mod rows
  double top_;              // unnormalised distribution function at the last rank
};

}  // namespace trifold
