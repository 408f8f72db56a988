#include "train/sampling/sampler.h"

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

TEST(ScoreToken, NormalisesOverAllTokens) {
  const TokenScore score = score_token(kLogits, 0, 2);
  EXPECT_EQ(score.token, 0);
  EXPECT_NEAR(score.log_probability, std::log(0.1), 1e-12);
  ASSERT_EQ(score.best.size(), 2U);
  EXPECT_EQ(score.best[0].first, 1);
  EXPECT_EQ(score.best[1].first, 2);
  EXPECT_NEAR(score.best[0].second, std::log(0.6), 1e-12);
  // Logits beyond the range of exp, and a tie, which the lower index wins.
  const std::vector<double> large{1000, 2000, 2000};
  EXPECT_NEAR(score_token(large, 2, 0).log_probability, -std::log(2.0), 1e-12);
  EXPECT_EQ(score_token(large, 2, 1).best[0].first, 1);
  EXPECT_TRUE(score_token(large, 0, 0).best.empty());
}

}  // namespace
}  // namespace trifold
