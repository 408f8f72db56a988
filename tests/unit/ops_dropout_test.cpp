#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

TEST(Dropout, MaskIsThePhiloxWordOfTheGlobalElement) {
  for (int64_t n : {1, 3, 600, 9001}) {
    for (uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 34) + 3}) {
      const Dropout how{0.3, philox_key(11, "block 2"), first};
      const Values x = random_values(n, 1);
      const Values residual = random_values(n, 2);
      Values dropped(x.size());
      Values added(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        dropped[i] = philox_word(how.key, first + i) >= 0.3 * 4294967296.0 ? x[i] / (1 - 0.3) : 0;
        added[i] = residual[i] + dropped[i];
      }
      check_everywhere({dropped, dropped, added},
                       [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                         const Host y(dtype, {n});
                         const Host in_place(dtype, {n}, x);
                         const Host sum(dtype, {n});
                         ops.dropout(stream, y, Host(dtype, {n}, x), how);
                         ops.dropout(stream, in_place, in_place, how);
                         ops.dropout_add(stream, sum, Host(dtype, {n}, residual), Host(dtype, {n}, x), how);
                         return {y.values(), in_place.values(), sum.values()};
                       });
    }
  }
}

TEST(Dropout, UniformFactorsAreOfTheSameWords) {
  for (int64_t n : {1, 3, 600, 9001})
    for (uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 34) + 3}) {
      const Dropout which{0, philox_key(11, "router"), first};
      const Values x = random_values(n, 1);
      Values scaled(x.size());
      for (size_t i = 0; i < x.size(); ++i)
        scaled[i] = x[i] * (-0.5 + 2 * (philox_word(which.key, first + i) + 0.5) / 4294967296.0);
      check_everywhere({scaled, scaled}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host y(dtype, {n});
        const Host in_place(dtype, {n}, x);
        ops.scale_uniform(stream, y, Host(dtype, {n}, x), -0.5, 1.5, which);
        ops.scale_uniform(stream, in_place, in_place, -0.5, 1.5, which);
        return {y.values(), in_place.values()};
      });
    }
}

TEST(Dropout, KeepsTheStatedShareAndTheMean) {
  const int64_t n = 1 << 18;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::F32, {n});
    ops.dropout(stream, y, Host(DType::F32, {n}, Values(n, 1.0)), {0.1, philox_key(3, "x"), 17});
    const Values got = y.values();
    const auto kept = n - std::count(got.begin(), got.end(), 0.0);
    // Four standard deviations of a binomial count.
    EXPECT_NEAR(static_cast<double>(kept), 0.9 * n, 4 * std::sqrt(n * 0.9 * 0.1));
  });
}

TEST(Dropout, TwoHalvesAreTheWhole) {
  const int64_t n = 5003;
  const int64_t cut = 2001;
  const Values x = random_values(n, 5);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    Dropout how{0.5, philox_key(1, "y"), 100};
    const Host in(DType::F32, {n}, x);
    const Host whole(DType::F32, {n});
    const Host halves(DType::F32, {n});
    ops.dropout(stream, whole, in, how);
    ops.dropout(stream, Tensor(halves).flat(0, cut), Tensor(in).flat(0, cut), how);
    how.first_element += static_cast<uint64_t>(cut);
    ops.dropout(stream, Tensor(halves).flat(cut, n), Tensor(in).flat(cut, n), how);
    EXPECT_EQ(whole.values(), halves.values());
  });
}

TEST(Dropout, ProbabilityZeroKeepsEverything) {
  const Values x = random_values(20000, 6);
  Values twice = x;
  for (double& value : twice) value *= 2;
  check_everywhere({x, twice}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
    const Host y(dtype, {20000});
    const Host sum(dtype, {20000});
    const Host in(dtype, {20000}, x);
    ops.dropout(stream, y, in, {});
    ops.dropout_add(stream, sum, in, in, {});
    return {y.values(), sum.values()};
  });
}

}  // namespace
}  // namespace trifold::ops_test
