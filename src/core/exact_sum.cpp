#include "core/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace trifold {
namespace {

constexpr int kDigits = kExactDigits;
constexpr auto kPositive = static_cast<size_t>(kExactPositive);
constexpr auto kNegative = static_cast<size_t>(kExactNegative);
constexpr auto kNan = static_cast<size_t>(kExactNan);

constexpr int kDigitBits = kExactDigitBits;
constexpr uint64_t kDigitMask = (uint64_t{1} << kDigitBits) - 1;
constexpr int kLowestExponent = -1074;
constexpr int kMantissaBits = 53;

// Normalizes the limbs: afterwards every digit but the last is in [0, 2^32), which makes the form unique.
void carry_digits(ExactSum::Limbs& limbs) {
  int64_t carried = 0;
  for (size_t d = 0; d + 1 < kDigits; ++d) {
    const int64_t sum = limbs[d] + carried;
    limbs[d] = sum & static_cast<int64_t>(kDigitMask);
    carried = sum >> kDigitBits;
  }
  limbs[kDigits - 1] += carried;
}

// Bits [low, low + 64) of a number whose digits are all in [0, 2^32); bits below 0 are 0.
uint64_t bits_from(const ExactSum::Limbs& limbs, int low) {
  uint64_t bits = 0;
  for (int d = 0; d < kDigits; ++d) {
    const int shift = d * kDigitBits - low;
    const auto digit = static_cast<uint64_t>(limbs[static_cast<size_t>(d)]);
    if (shift >= 0 && shift < 64) bits |= digit << shift;
    if (shift < 0 && shift > -kDigitBits) bits |= digit >> -shift;
  }
  return bits;
}

bool any_below(const ExactSum::Limbs& limbs, int bit) {
  for (int d = 0; d * kDigitBits < bit; ++d) {
    const int width = bit - d * kDigitBits;
    const auto digit = static_cast<uint64_t>(limbs[static_cast<size_t>(d)]);
    if ((width >= kDigitBits ? digit : digit & ((uint64_t{1} << width) - 1)) != 0) return true;
  }
  return false;
}

// The double nearest to a non-negative number in carried form.
double rounded(const ExactSum::Limbs& limbs) {
  int top = kDigits - 1;
  while (top >= 0 && limbs[static_cast<size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto highest = static_cast<uint64_t>(limbs[static_cast<size_t>(top)]);
  const int length = top * kDigitBits + static_cast<int>(std::bit_width(highest));
  // A short number is taken whole, so subnormals need no special case.
  const int low = length > kMantissaBits ? length - kMantissaBits : 0;
  uint64_t mantissa = bits_from(limbs, low) & ((uint64_t{1} << kMantissaBits) - 1);
  const bool half = low > 0 && (bits_from(limbs, low - 1) & 1) != 0;
  if (half && ((mantissa & 1) != 0 || any_below(limbs, low - 1))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), low + kLowestExponent);
}

}  // namespace

void ExactSum::add(double value) {
  const ExactDigits digits = exact_digits(std::bit_cast<uint64_t>(value));
  int64_t* limb = &limbs_[static_cast<size_t>(digits.first)];
  limb[0] += digits.at[0];
  if (digits.count == 1) return;
  limb[1] += digits.at[1];
  limb[2] += digits.at[2];
  if (++pending_ >= kMostExactAdditions) carry();
}

void ExactSum::add(std::span<const double> values) {
  for (const double value : values) add(value);
}

void ExactSum::add(const ExactSum& other) { add_limbs(other.limbs_); }

void ExactSum::add_limbs(std::span<const int64_t> limbs) {
  check(limbs.size() == kLimbs, "ExactSum: {} limbs are given, but a sum has {}", limbs.size(), kLimbs);
  Limbs carried;
  for (size_t i = 0; i < kLimbs; ++i) carried[i] = limbs[i];
  carry_digits(carried);
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += carried[i];
  if (++pending_ >= kMostExactAdditions) carry();
}

const ExactSum::Limbs& ExactSum::limbs() {
  carry();
  return limbs_;
}

void ExactSum::carry() {
  carry_digits(limbs_);
  pending_ = 0;
}

double ExactSum::value() const {
  const bool up = limbs_[kPositive] > 0;
  const bool down = limbs_[kNegative] > 0;
  if (limbs_[kNan] > 0 || (up && down)) return std::numeric_limits<double>::quiet_NaN();
  if (up || down) return up ? HUGE_VAL : -HUGE_VAL;
  Limbs digits = limbs_;
  carry_digits(digits);
  const bool negative = digits[kDigits - 1] < 0;
  if (negative) {
    for (size_t d = 0; d < kDigits; ++d) digits[d] = -digits[d];
    carry_digits(digits);
  }
  return negative ? -rounded(digits) : rounded(digits);
}

}  // namespace trifold
