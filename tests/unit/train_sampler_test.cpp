#include "train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trifold {
namespace {

const std::vector<double> kLogits{std::log(0.1), std::log(0.6), std::log(0.3)};

TEST(DrawToken, FollowsTheDistribution) {
  const SamplingRule all;
  // Tokens by falling probability: 1 (0.6), 2 (0.3), 0 (0.1).
  EXPECT_EQ(draw_token(kLogits, all, 0.0), 1);
  EXPECT_EQ(draw_token(kLogits, all, 0.59), 1);
  EXPECT_EQ(draw_token(kLogits, all, 0.61), 2);
  EXPECT_EQ(draw_token(kLogits, all, 0.89), 2);
  EXPECT_EQ(draw_token(kLogits, all, 0.91), 0);
  EXPECT_EQ(draw_token(kLogits, all, 0.999999), 0);
}

TEST(DrawToken, CutsByRankAndByProbability) {
  EXPECT_EQ(draw_token(kLogits, {0.0, 0, 1.0}, 0.99), 1);  // temperature 0: the likeliest
  EXPECT_EQ(draw_token(kLogits, {1.0, 1, 1.0}, 0.99), 1);
  EXPECT_EQ(draw_token(kLogits, {1.0, 2, 1.0}, 0.99), 2);  // never 0
  EXPECT_EQ(draw_token(kLogits, {1.0, 0, 0.5}, 0.99), 1);
  EXPECT_EQ(draw_token(kLogits, {1.0, 0, 0.7}, 0.99), 2);
  EXPECT_EQ(draw_token(kLogits, {1000.0, 0, 1.0}, 0.99), 0);  // hot: nearly uniform
}

}  // namespace
}  // namespace trifold
