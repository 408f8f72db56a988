#include "train/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/test_data.h"
#include "train/sampling/stop_texts.h"

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

TEST(DrawToken, LeavesOutTokensBelowAPartOfTheLikeliest) {
  EXPECT_EQ(draw_token(kLogits, {.min_p = 0.4}, 0.99), 2);  // 0.3 >= 0.4 * 0.6 > 0.1
  EXPECT_EQ(draw_token(kLogits, {.min_p = 0.6}, 0.99), 1);
  EXPECT_EQ(draw_token(kLogits, {.min_p = 1}, 0.99), 1);
  EXPECT_EQ(draw_token(kLogits, {.min_p = 0.1}, 0.99), 0);
}

// Which token each part of [0, 1) draws, among more tokens than are sorted at once.
TEST(DrawToken, FollowsTheDistributionOfManyTokens) {
  std::vector<double> logits(3000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<double>(i * i));
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  double all = 0, before = 0;
  for (const double logit : logits) all += std::exp(logit);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double part = std::exp(logits[order[rank]]) / all;
    if (rank % 97 == 0 || rank < 3) {
      EXPECT_EQ(draw_token(logits, {}, before + part / 2), static_cast<int64_t>(order[rank])) << rank;
    }
    before += part;
  }
}

// tools/reference/sampling_rules.py: the probabilities after transformers' logits processors, in their order.
TEST(DrawToken, FollowsTheRulesOfTransformers) {
  std::ifstream file(test::test_data() + std::string("/golden/sampling_rules.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 50U);
  for (const nlohmann::json& c : cases) {
    SCOPED_TRACE(c.at("rule").dump());
    const nlohmann::json& given = c.at("rule");
    const SamplingRule rule{given.at("temperature"), given.at("top_k"), given.at("top_p"), given.at("min_p"),
                            given.at("repetition_penalty")};
    auto logits = c.at("logits").get<std::vector<double>>();
    penalise_repetition(logits, c.at("tokens").get<std::vector<int32_t>>(), rule.repetition_penalty);
    const auto probabilities = c.at("probabilities").get<std::vector<double>>();
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
    double before = 0;
    for (const size_t id : order) {
      const double part = probabilities[id];
      if (part == 0) break;
      for (const double within : {1e-6, 0.5, 1 - 1e-6})
        EXPECT_EQ(draw_token(logits, rule, before + within * part), static_cast<int64_t>(id)) << within;
      before += part;
    }
    EXPECT_NEAR(before, 1, 1e-12);
  }
}

TEST(StopTexts, HoldBackWhatMayBeTheBeginningOfOne) {
  StopTexts stops({"END", "\n\n"});
  EXPECT_EQ(stops.add("abc"), "abc");
  EXPECT_EQ(stops.add("dE"), "d");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("X\n"), "ENX");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.finish(), "\n");
}

TEST(StopTexts, EndAtTheFirst) {
  StopTexts stops({"later", "END", "ND"});
  EXPECT_EQ(stops.add("one E"), "one ");
  EXPECT_EQ(stops.add("ND later"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.add("more"), "");
  EXPECT_EQ(stops.finish(), "");
  StopTexts none({""});
  EXPECT_EQ(none.add("text"), "text");
  EXPECT_FALSE(none.found());
  // A text that begins again within itself.
  StopTexts again({"aab"});
  EXPECT_EQ(again.add("aaa"), "a");
  EXPECT_EQ(again.add("b"), "");
  EXPECT_TRUE(again.found());
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
