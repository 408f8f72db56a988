#include "core/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trifold {
namespace {

template <class T>
void find_each(DType dtype, T infinity, T nan) {
  std::vector<T> values(9001, T(1));
  values[17] = T(-0.0F);
  EXPECT_FALSE(first_not_finite(values.data(), dtype, std::ssize(values)));
  for (const int64_t at : {int64_t{0}, int64_t{4095}, int64_t{4096}, int64_t{9000}}) {
    std::vector<T> broken = values;
    const auto search = [&] { return first_not_finite(broken.data(), dtype, std::ssize(broken)).value(); };
    broken[static_cast<size_t>(at)] = infinity;
    EXPECT_EQ(search().index, at);
    EXPECT_EQ(search().what, "inf");
    broken[static_cast<size_t>(at)] = T(-static_cast<float>(infinity));
    EXPECT_EQ(search().what, "-inf");
    broken[static_cast<size_t>(at)] = nan;
    broken.back() = nan;
    EXPECT_EQ(search().index, at);
    EXPECT_EQ(search().what, "nan");
    EXPECT_FALSE(first_not_finite(broken.data(), dtype, at));
  }
}

TEST(NotFinite, IsFoundInEveryFloatingPointType) {
  constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  find_each<double>(DType::F64, kFloatInfinity, nan);
  find_each<float>(DType::F32, kFloatInfinity, nan);
  find_each<Bfloat16>(DType::BF16, Bfloat16(kFloatInfinity), Bfloat16(nan));
  find_each<Float16>(DType::F16, Float16(kFloatInfinity), Float16(nan));
}

TEST(NotFinite, TheLargestAndSmallestNumbersAreFinite) {
  const std::vector<float> values{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                                  std::numeric_limits<float>::denorm_min(), 0};
  EXPECT_FALSE(first_not_finite(values.data(), DType::F32, std::ssize(values)));
}

TEST(NotFinite, IntegersAlwaysAre) {
  const std::vector<int32_t> values(10, -1);
  EXPECT_FALSE(first_not_finite(values.data(), DType::I32, std::ssize(values)));
}

}  // namespace
}  // namespace trifold
