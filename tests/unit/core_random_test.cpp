#include "core/random.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

// The known-answer vectors published with the algorithm's reference implementation (philox4x32, 10 rounds):
// counter and key all zero, and all ones (our counter has two words, so only vectors whose upper two words
// are zero apply).
TEST(Philox, MatchesTheKnownAnswer) {
  const auto words = philox({0, 0}, 0);
  EXPECT_EQ(words[0], 0x6627e8d5U);
  EXPECT_EQ(words[1], 0xe169c58dU);
  EXPECT_EQ(words[2], 0xbc57ac4cU);
  EXPECT_EQ(words[3], 0x9b00dbd8U);
}

// Computed by another program that gives all three published vectors: here both words of counter and key
// count.
TEST(Philox, UsesBothWordsOfCounterAndKey) {
  const auto words = philox({0xa4093822U, 0x299f31d0U}, 0x85a308d3243f6a88ULL);
  EXPECT_EQ(words[0], 0xe69c9c31U);
  EXPECT_EQ(words[1], 0xb5a3d762U);
  EXPECT_EQ(words[2], 0xe733bfc1U);
  EXPECT_EQ(words[3], 0x341a787cU);
}

TEST(Philox, KeysDependOnSeedAndName) {
  const PhiloxKey a = philox_key(1, "wte");
  const PhiloxKey b = philox_key(2, "wte");
  const PhiloxKey c = philox_key(1, "wpe");
  EXPECT_FALSE(a.lo == b.lo && a.hi == b.hi);
  EXPECT_FALSE(a.lo == c.lo && a.hi == c.hi);
}

TEST(Philox, NormalHasUnitMoments) {
  const PhiloxKey key = philox_key(7, "moments");
  constexpr int kCount = 200'000;
  double sum = 0;
  double square = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = philox_normal(key, static_cast<uint64_t>(i));
    sum += x;
    square += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(square / kCount, 1.0, 0.02);
}

}  // namespace
}  // namespace trifold
