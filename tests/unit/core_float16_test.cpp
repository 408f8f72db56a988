#include "core/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace trifold {
namespace {

TEST(Float16, AllValuesComeBack) {
  for (uint32_t word = 0; word < 65536; ++word) {
    Float16 half;
    half.bits = static_cast<uint16_t>(word);
    const auto value = static_cast<double>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<double>(Float16(value))));
    } else {
      EXPECT_EQ(Float16(value).bits, word) << value;
    }
    Bfloat16 brain;
    brain.bits = static_cast<uint16_t>(word);
    const auto wide = static_cast<double>(brain);
    EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(brain)), word << 16);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<double>(Bfloat16(wide))));
    } else {
      EXPECT_EQ(Bfloat16(wide).bits, word) << wide;
    }
  }
}

// Between any two neighbours: below the middle goes down, above it goes up, the middle goes to the even one.
template <class T>
void check_rounding(uint16_t largest) {
  const auto value = [](uint32_t word) {
    T t;
    t.bits = static_cast<uint16_t>(word);
    return static_cast<double>(t);
  };
  for (uint16_t word = 0; word < largest; ++word) {
    const double low = value(word);
    const double high = value(word + 1U);
    const double middle = low + (high - low) / 2;
    const uint16_t even = word % 2 == 0 ? word : static_cast<uint16_t>(word + 1);
    EXPECT_EQ(T(middle).bits, even) << low;
    EXPECT_EQ(T(std::nextafter(middle, 0)).bits, word) << low;
    EXPECT_EQ(T(std::nextafter(middle, INFINITY)).bits, word + 1) << low;
    EXPECT_EQ(T(-middle).bits, even | 0x8000);
  }
  const double last = value(largest);
  const double beyond = last + (last - value(largest - 1U)) / 2;
  EXPECT_EQ(T(std::nextafter(beyond, 0)).bits, largest);
  EXPECT_EQ(T(beyond).bits, largest + 1) << "infinity";
  EXPECT_EQ(T(-1e300).bits, (largest + 1U) | 0x8000U);
}

TEST(Float16, RoundsToNearestTiesToEven) {
  check_rounding<Float16>(0x7bff);
  check_rounding<Bfloat16>(0x7f7f);
}

}  // namespace
}  // namespace trifold
