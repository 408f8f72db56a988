#include "core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"

namespace trifold {
namespace {

using Integer = boost::multiprecision::cpp_int;
using Values = std::vector<double>;

constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kHuge = std::numeric_limits<double>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// x * 2^1074, which is whole.
Integer scaled(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const Integer mantissa(static_cast<int64_t>(std::ldexp(fraction, 53)));
  const int shift = exponent - 53 + 1074;
  return shift >= 0 ? Integer(mantissa << shift) : Integer(mantissa / (Integer(1) << -shift));
}

double sum_of(const Values& values) {
  ExactSum sum;
  sum.add(values);
  return sum.value();
}

// Checks, in whole numbers, that no other double is nearer to the sum, and that a tie went to the even one.
void expect_nearest(const Values& values) {
  Integer exact = 0;
  for (const double value : values) exact += scaled(value);
  const double got = sum_of(values);
  ASSERT_TRUE(std::isfinite(got));
  const Integer gap = abs(exact - scaled(got));
  for (const double direction : {-kInfinity, kInfinity}) {
    const double other = std::nextafter(got, direction);
    if (!std::isfinite(other)) continue;
    const Integer other_gap = abs(exact - scaled(other));
    EXPECT_LE(gap, other_gap) << got << " is not nearest";
    if (gap == other_gap) {
      EXPECT_EQ(std::bit_cast<uint64_t>(got) & 1, 0U) << "a tie must go to even";
    }
  }
}

// Doubles of both signs whose exponents are spread evenly from `low` to `high` (powers of two).
Values spread_values(size_t count, int low, int high, std::mt19937_64& random) {
  std::uniform_int_distribution<int> exponent(low, high);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  Values values(count);
  for (double& value : values) value = std::ldexp(mantissa(random), exponent(random));
  return values;
}

TEST(ExactSumTest, IsTheNearestDoubleOverTheWholeRange) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    expect_nearest(spread_values(20, -1074, 1019, random));  // the largest decide
    expect_nearest(spread_values(50, -30, 30, random));
    expect_nearest(spread_values(50, -1074, -1000, random));  // subnormal numbers and results
    expect_nearest(spread_values(50, 990, 1017, random));
  }
}

TEST(ExactSumTest, CancellingTermsLeaveTheRest) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    Values values = spread_values(40, -1000, 1000, random);
    const Values rest = spread_values(3, -1074, 900, random);
    for (size_t i = 0; i < 40; ++i) values.push_back(-values[i]);
    EXPECT_EQ(std::bit_cast<uint64_t>(sum_of(values)), 0U) << "nothing is left: +0";
    values.insert(values.end(), rest.begin(), rest.end());
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(sum_of(values), sum_of(rest));
    expect_nearest(values);
  }
}

TEST(ExactSumTest, TiesGoToEvenUnlessSomethingTinyDecides) {
  const double ulp = std::ldexp(1.0, -52);
  EXPECT_EQ(sum_of({1, ulp / 2}), 1);
  EXPECT_EQ(sum_of({1 + ulp, ulp / 2}), 1 + 2 * ulp);
  EXPECT_EQ(sum_of({1, ulp / 2, kTiny}), 1 + ulp);
  EXPECT_EQ(sum_of({1 + ulp, ulp / 2, -kTiny}), 1 + ulp);
  EXPECT_EQ(sum_of({-1, -ulp / 2, -kTiny}), -1 - ulp);
  EXPECT_EQ(sum_of({-1 - ulp, -ulp / 2}), -1 - 2 * ulp);
  EXPECT_EQ(sum_of({2 - ulp, ulp / 2}), 2) << "rounding up may reach the next power of two";
}

TEST(ExactSumTest, SubnormalsAreExact) {
  EXPECT_EQ(sum_of({kTiny}), kTiny);
  EXPECT_EQ(sum_of({-kTiny, -kTiny, -kTiny}), -3 * kTiny);
  const double least_normal = std::numeric_limits<double>::min();
  EXPECT_EQ(sum_of({least_normal, -kTiny}), least_normal - kTiny);
  EXPECT_EQ(sum_of({1e300, kTiny, -1e300}), kTiny);
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({-0.0})), 0U);
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({})), 0U);
}

TEST(ExactSumTest, OverflowIsThatOfTheExactSumAlone) {
  EXPECT_EQ(sum_of({kHuge, kHuge, -kHuge}), kHuge);
  EXPECT_EQ(sum_of({kHuge, kHuge}), kInfinity);
  EXPECT_EQ(sum_of({-kHuge, -kHuge}), -kInfinity);
  const double half_ulp = std::ldexp(1.0, 970);
  EXPECT_EQ(sum_of({kHuge, half_ulp}), kInfinity) << "the tie beyond the largest double rounds up";
  EXPECT_EQ(sum_of({kHuge, half_ulp, -kTiny}), kHuge);
  EXPECT_EQ(sum_of(Values(100'000, kHuge)), kInfinity);
  Values values(100'000, kHuge);
  values.resize(200'000, -kHuge);
  values.push_back(0.5);
  EXPECT_EQ(sum_of(values), 0.5);
}

TEST(ExactSumTest, RemembersInfinitiesAndNans) {
  EXPECT_EQ(sum_of({1, kInfinity, -2}), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, -kInfinity, kHuge}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, 1, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({1, kNan, kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({-kNan})));
  ExactSum ranks[2];
  ranks[0].add(kInfinity);
  ranks[1].add(-kInfinity);
  EXPECT_EQ(ranks[0].value(), kInfinity);
  ranks[0].add(ranks[1]);
  EXPECT_TRUE(std::isnan(ranks[0].value()));
}

TEST(ExactSumTest, OrderDoesNotMatter) {
  std::mt19937_64 random(3);
  Values values = spread_values(2000, -1074, 1010, random);
  ExactSum first;
  first.add(values);
  const ExactSum::Limbs limbs = first.limbs();
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum sum;
    sum.add(values);
    EXPECT_EQ(sum.value(), first.value());
    EXPECT_EQ(sum.limbs(), limbs);
  }
}

// As an all_reduce does it: limbs of many ranks are added place by place, in any order, as 64-bit numbers.
TEST(ExactSumTest, LimbsOfManyRanksMayBeAdded) {
  std::mt19937_64 random(4);
  constexpr size_t kRanks = 5000;
  const Values values = spread_values(3 * kRanks, -1074, 1000, random);
  ExactSum whole;
  whole.add(values);
  std::vector<int64_t> reduced(ExactSum::kLimbs);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ExactSum part;
    for (size_t i = rank; i < values.size(); i += kRanks) part.add(values[i]);
    const ExactSum::Limbs& limbs = part.limbs();
    for (size_t i = 0; i < reduced.size(); ++i) reduced[i] += limbs[i];
  }
  ExactSum merged;
  merged.add_limbs(reduced);
  EXPECT_EQ(merged.value(), whole.value());
  EXPECT_EQ(merged.limbs(), whole.limbs());
}

// What the header promises of a billion ranks: no limb that takes part in a sum is larger than 32 bits, but
// for the last digit, which counts units beyond any double, and the three counts.
TEST(ExactSumTest, LimbsLeaveRoomForABillionRanks) {
  std::mt19937_64 random(5);
  for (const double sign : {-1.0, 1.0}) {
    ExactSum sum;
    sum.add(Values(10'000, sign * kHuge));
    sum.add(spread_values(10'000, -1074, 1000, random));
    for (const int64_t limb : sum.limbs()) EXPECT_LT(std::abs(limb), int64_t{1} << 32);
  }
  // A billion ranks with all ones: 2^30 copies by doubling, every limb still an int64.
  ExactSum one;
  one.add(-kTiny);
  ExactSum::Limbs limbs = one.limbs();
  for (int64_t& limb : limbs) limb *= int64_t{1} << 30;
  ExactSum merged;
  merged.add_limbs(limbs);
  EXPECT_EQ(merged.value(), -kTiny * std::ldexp(1.0, 30));
}

// More additions than limbs have room for without a carry would take minutes; doubling a sum gets there.
TEST(ExactSumTest, ManyAdditionsOfSumsCarry) {
  ExactSum sum;
  sum.add(1 - std::ldexp(1.0, -53));
  for (int i = 0; i < 100; ++i) sum.add(ExactSum(sum));
  EXPECT_EQ(sum.value(), std::ldexp(1 - std::ldexp(1.0, -53), 100));
}

TEST(ExactSumTest, AWrongNumberOfLimbsIsAnError) {
  ExactSum sum;
  EXPECT_THROW(sum.add_limbs(std::vector<int64_t>(ExactSum::kLimbs - 1)), Error);
}

}  // namespace
}  // namespace trifold
