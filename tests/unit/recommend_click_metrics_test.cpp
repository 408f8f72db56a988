#include "recommend/metrics/click_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/error.h"
#include "support/ranks.h"

namespace trifold {
namespace {

struct Predictions {
  std::vector<float> logits, labels, weights;
  std::vector<float> sample_weights = {};  // empty: samples have none

  void add(float logit, float label, float weight = 1) {
    logits.push_back(logit);
    labels.push_back(label);
    weights.push_back(weight);
  }
  int64_t size() const { return std::ssize(logits); }
  static Tensor view(std::vector<float>& values, int64_t begin, int64_t end) {
    return {values.data() + begin, DType::F32, {end - begin}};
  }
  void give(ClickMetrics& metrics, int64_t begin, int64_t end) {
    metrics.add(view(logits, begin, end), view(labels, begin, end), view(weights, begin, end), begin,
                weighted() ? view(sample_weights, begin, end) : Tensor{});
  }
  bool weighted() const { return !sample_weights.empty(); }
};

ClickScores alone(Predictions p) {
  ClickScores scores;
  test::run_ranks(1, [&](Communicator& world) {
    test::OwnStream stream;
    ClickMetrics metrics(p.weighted());
    p.give(metrics, 0, p.size());
    scores = metrics.finish(world, stream);
  });
  return scores;
}

// Scores of few values, so that there are many ties; every ninth sample does not count.
Predictions random_predictions(int64_t count, int values) {
  Predictions p;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> value(-values, values);
  std::bernoulli_distribution click(0.3);
  for (int64_t i = 0; i < count; ++i)
    p.add(static_cast<float>(value(random)) / 64, click(random) ? 1.0F : 0.0F, i % 9 == 8 ? 0.0F : 1.0F);
  return p;
}

double brute_auc(const Predictions& p) {
  double ranked = 0, pairs = 0;
  for (size_t i = 0; i < p.logits.size(); ++i)
    for (size_t k = 0; k < p.logits.size(); ++k) {
      if (p.weights[i] * p.weights[k] == 0 || p.labels[i] != 1 || p.labels[k] != 0) continue;
      pairs += 1;
      ranked += p.logits[i] > p.logits[k] ? 1 : p.logits[i] == p.logits[k] ? 0.5 : 0;
    }
  return ranked / pairs;
}

TEST(ClickMetrics, AucIsTheShareOfPairs) {
  for (const int values : {1, 5, 1000}) {
    const Predictions p = random_predictions(700, values);
    EXPECT_NEAR(alone(p).auc.value(), brute_auc(p), 1e-14);
  }
  Predictions scored;  // far apart in size, both signs, both zeros
  const float logits[] = {-1e30F, -2, -1e-30F, -0.0F, 0, 1e-30F, 2, 1e30F};
  for (int i = 0; i < 8; ++i) scored.add(logits[i], i % 3 == 0 ? 1.0F : 0.0F);
  EXPECT_NEAR(alone(scored).auc.value(), brute_auc(scored), 1e-15);
}

TEST(ClickMetrics, ClosedForms) {
  Predictions perfect;
  perfect.add(3, 1);
  perfect.add(-3, 0);
  perfect.add(-4, 0);
  ClickScores scores = alone(perfect);
  EXPECT_EQ(scores.auc, 1.0);
  EXPECT_EQ(scores.accuracy, 1.0);
  EXPECT_NEAR(scores.log_loss, (2 * std::log1p(std::exp(-3.0)) + std::log1p(std::exp(-4.0))) / 3, 1e-15);

  Predictions constant;  // the share of clicks itself: AUC one half, normalised entropy and calibration 1
  for (int i = 0; i < 8; ++i) constant.add(static_cast<float>(std::log(0.25 / 0.75)), i < 2 ? 1.0F : 0.0F);
  scores = alone(constant);
  EXPECT_EQ(scores.samples, 8);
  EXPECT_EQ(scores.clicks, 2);
  EXPECT_EQ(scores.auc, 0.5);
  EXPECT_NEAR(scores.normalised_entropy.value(), 1, 1e-7);
  EXPECT_NEAR(scores.calibration.value(), 1, 1e-7);
  EXPECT_EQ(scores.accuracy, 0.75);
  EXPECT_NEAR(scores.log_loss, -0.25 * std::log(0.25) - 0.75 * std::log(0.75), 1e-7);

  Predictions extreme;  // the loss of a wrong answer is its logit, and nothing overflows
  extreme.add(1000, 0);
  extreme.add(-1000, 1);
  scores = alone(extreme);
  EXPECT_EQ(scores.log_loss, 1000);
  EXPECT_EQ(scores.auc, 0.0);
}

TEST(ClickMetrics, UndefinedMetricsAreAbsent) {
  Predictions only;
  EXPECT_EQ(alone(only).samples, 0);
  only.add(1, 0);
  only.add(5, 1, 0);
  const ClickScores scores = alone(only);
  EXPECT_EQ(scores.samples, 1);
  EXPECT_FALSE(scores.auc || scores.normalised_entropy || scores.calibration);
  EXPECT_NEAR(scores.log_loss, std::log1p(std::exp(1.0)), 1e-15);
}

// Weights that are whole numbers count a sample as if it were there that many times.
TEST(ClickMetrics, WeightsRepeatSamples) {
  Predictions weighted = random_predictions(700, 40), repeated;
  std::mt19937 random(3);
  for (size_t i = 0; i < weighted.logits.size(); ++i) {
    const auto times = static_cast<int>(random() % 4);
    weighted.sample_weights.push_back(static_cast<float>(times));
    weighted.weights[i] *= static_cast<float>(times);  // as a batch has it
    for (int k = 0; k < times && weighted.weights[i] != 0; ++k)
      repeated.add(weighted.logits[i], weighted.labels[i]);
  }
  const ClickScores scores = alone(weighted), expected = alone(repeated);
  EXPECT_LT(scores.samples, expected.samples);
  EXPECT_EQ(scores.weight.value(), static_cast<double>(expected.samples));
  EXPECT_FALSE(expected.weight);
  EXPECT_EQ(scores.auc, expected.auc);
  EXPECT_EQ(scores.accuracy, expected.accuracy);
  EXPECT_NEAR(scores.log_loss, expected.log_loss, 1e-15);
  EXPECT_NEAR(scores.calibration.value(), expected.calibration.value(), 1e-15);
  EXPECT_NEAR(scores.normalised_entropy.value(), expected.normalised_entropy.value(), 1e-15);
}

TEST(ClickMetrics, AucCountsPairsByTheirWeights) {
  Predictions p = random_predictions(700, 100);
  std::mt19937 random(4);
  for (int64_t i = 0; i < p.size(); ++i)
    p.sample_weights.push_back(std::exp(static_cast<float>(random() % 1000) / 100 - 5));
  double ranked = 0, pairs = 0;
  for (size_t i = 0; i < p.logits.size(); ++i)
    for (size_t k = 0; k < p.logits.size(); ++k) {
      if (p.weights[i] * p.weights[k] == 0 || p.labels[i] != 1 || p.labels[k] != 0) continue;
      const double pair = static_cast<double>(p.sample_weights[i]) * static_cast<double>(p.sample_weights[k]);
      pairs += pair;
      ranked += pair * (p.logits[i] > p.logits[k] ? 1 : p.logits[i] == p.logits[k] ? 0.5 : 0);
    }
  EXPECT_NEAR(alone(p).auc.value(), ranked / pairs, 1e-8);
}

// The same bits on every number of ranks and however samples are dealt out, some ranks without any.
TEST(ClickMetrics, RanksDoNotMatter) {
  for (const int values : {0, 3, 100'000, 100'001}) {
    Predictions p = random_predictions(5000, values);
    for (int64_t i = 0; values > 100'000 && i < p.size(); ++i)
      p.sample_weights.push_back(1 / static_cast<float>(1 + i % 13));
    const ClickScores one = alone(p);
    for (const int ranks : {2, 3, 8}) {
      test::run_ranks(ranks, [&](Communicator& world) {
        test::OwnStream stream;
        ClickMetrics metrics(p.weighted());
        for (int again = 0; again < 2; ++again) {  // finish() forgets
          for (int64_t begin = 0; begin < p.size(); begin += 100)
            if ((begin / 100) % (ranks - 1) == world.rank()) p.give(metrics, begin, begin + 100);
          const ClickScores scores = metrics.finish(world, stream);
          EXPECT_EQ(scores.samples, one.samples);
          EXPECT_EQ(scores.clicks, one.clicks);
          EXPECT_EQ(scores.auc, one.auc);
          EXPECT_EQ(scores.log_loss, one.log_loss);
          EXPECT_EQ(scores.accuracy, one.accuracy);
          EXPECT_EQ(scores.calibration, one.calibration);
          EXPECT_EQ(scores.normalised_entropy, one.normalised_entropy);
        }
      });
    }
  }
}

TEST(ClickMetrics, NeverASilentNan) {
  const auto message = [](float logit, float label) {
    Predictions p;
    p.add(0, 1);
    p.add(logit, label);
    try {
      alone(p);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(std::nanf(""), 1).find("the prediction for sample 1 is nan"), std::string::npos);
  EXPECT_NE(message(INFINITY, 1).find("the prediction for sample 1 is inf"), std::string::npos);
  EXPECT_NE(message(0, 2).find("the label of sample 1 is 2"), std::string::npos);
}

TEST(ClickMetrics, TakesDoubles) {
  std::vector<double> logits{0.5, -0.5};
  std::vector<float> labels{1, 0}, weights{1, 1};
  test::run_ranks(1, [&](Communicator& world) {
    test::OwnStream stream;
    ClickMetrics metrics;
    metrics.add({logits.data(), DType::F64, {2, 1}}, {labels.data(), DType::F32, {2}},
                {weights.data(), DType::F32, {2}});
    EXPECT_EQ(metrics.finish(world, stream).auc, 1.0);
  });
}

}  // namespace
}  // namespace trifold
