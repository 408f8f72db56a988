#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/ops_support.h"

namespace trifold {
namespace {

using ops_test::Host;
using ops_test::random_values;
using ops_test::Values;
using ops_test::with_every_table;

TEST(RoundRandomly, TakesOneOfTheTwoNeighbours) {
  const int64_t n = 5000;
  const Values x = random_values(n, 4);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::BF16, {n}), in(DType::F32, {n}, x);
    ops.round_randomly(stream, y, in, {philox_key(1, "m")});
    const Values got = y.values(), exact = in.values();
    int64_t up = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(std::abs(got[i] - exact[i]), std::abs(exact[i]) * 0x1p-7) << i;
      up += std::abs(got[i]) > std::abs(exact[i]) ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(up), 0.5 * n, 4 * std::sqrt(0.25 * n));
  });
}

// 1 + 1/512 is a quarter of the way from 1 to the next number.
TEST(RoundRandomly, KeepsTheMean) {
  const int64_t n = 1 << 18;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::BF16, {n});
    ops.round_randomly(stream, y, Host(DType::F32, {n}, Values(n, 1 + 1.0 / 512)), {philox_key(1, "m")});
    double up = 0;
    for (const double value : y.values()) up += value > 1 ? 1 : 0;
    EXPECT_NEAR(up, 0.25 * n, 4 * std::sqrt(n * 0.25 * 0.75));
  });
}

TEST(RoundRandomly, KeepsWhatBf16Has) {
  const Values x = {0, -0.0, 1, -2.5, 0x1p-126, HUGE_VAL, -HUGE_VAL, 3.0e38};
  const auto n = static_cast<int64_t>(x.size());
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::BF16, {n}), in(DType::BF16, {n}, x), wide(DType::F32, {n});
    ops.convert(stream, wide, in);
    ops.round_randomly(stream, y, wide, {philox_key(1, "m")});
    EXPECT_EQ(y.values(), in.values());
    const Host nan(DType::BF16, {1});
    ops.round_randomly(stream, nan, Host(DType::F32, {1}, {std::numeric_limits<double>::quiet_NaN()}),
                       {philox_key(1, "m")});
    EXPECT_TRUE(std::isnan(nan.values()[0]));
  });
}

// Columns 4 to 9 of a matrix of 12 columns, from the middle of a row on, as in the whole matrix.
TEST(RoundRandomly, IsTheSameInEveryPartOfATensor) {
  const int64_t rows = 60, columns = 12, width = 5;
  const Values x = random_values(rows * columns, 8);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const PhiloxKey key = philox_key(7, "m");
    const Host whole(DType::BF16, {rows * columns});
    ops.round_randomly(stream, whole, Host(DType::F32, {rows * columns}, x), {key});
    Values part, expected;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 4; column < 4 + width; ++column) {
        part.push_back(x[static_cast<size_t>(row * columns + column)]);
        expected.push_back(whole.values()[static_cast<size_t>(row * columns + column)]);
      }
    const int64_t first = 3;
    part.erase(part.begin(), part.begin() + first);
    expected.erase(expected.begin(), expected.begin() + first);
    const auto n = static_cast<int64_t>(part.size());
    const Host y(DType::BF16, {n});
    ops.round_randomly(stream, y, Host(DType::F32, {n}, part), {key, 4, width, columns, first});
    EXPECT_EQ(y.values(), expected);
  });
}

}  // namespace
}  // namespace trifold
