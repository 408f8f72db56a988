#include "recommend/metrics/group_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "support/ranks.h"
#include "support/test_data.h"

namespace trifold {
namespace {

// Samples with a group each; group -1: none.
struct Grouped {
  std::vector<float> logits, labels, weights;
  std::vector<int32_t> groups;

  void add(int32_t group, float logit, float label, float weight = 1) {
    groups.push_back(group);
    logits.push_back(logit);
    labels.push_back(label);
    weights.push_back(weight);
  }
  int64_t size() const { return std::ssize(logits); }
  void give(GroupMetrics& metric, int64_t begin, int64_t end) {
    std::vector<uint64_t> of_samples;
    for (int64_t i = begin; i < end; ++i)
      of_samples.push_back(static_cast<uint64_t>(int64_t{groups[static_cast<size_t>(i)]} + 1));
    const auto view = [&](std::vector<float>& values) {
      return Tensor{values.data() + begin, DType::F32, {end - begin}};
    };
    metric.add(view(logits), view(labels), view(weights), of_samples);
  }
};

GroupScores alone(Grouped samples, const std::vector<int64_t>& places = {}) {
  GroupScores scores;
  test::run_ranks(1, [&](Communicator& world) {
    test::OwnStream stream;
    GroupMetrics metric(places);
    samples.give(metric, 0, samples.size());
    scores = metric.finish(world, stream);
  });
  return scores;
}

TEST(GroupMetrics, WeighsEachGroupByItsSamples) {
  Grouped samples;
  // Group 5: one pair in the right order, one tie: 1.5 of 2 pairs, 3 samples.
  samples.add(5, 2, 1);
  samples.add(5, -1, 0);
  samples.add(5, 2, 0);
  // Group 9: the one pair in the wrong order, 2 samples.
  samples.add(9, -3, 1);
  samples.add(9, 4, 0);
  // None of these counts: one label only, no group, weight 0.
  samples.add(1, 1, 1);
  samples.add(1, 0, 1);
  samples.add(-1, 1, 0);
  samples.add(9, -9, 0, 0);
  const GroupScores scores = alone(samples);
  EXPECT_EQ(scores.groups, 2);
  EXPECT_EQ(scores.samples, 5);
  ASSERT_TRUE(scores.gauc);
  EXPECT_DOUBLE_EQ(*scores.gauc, (3 * 0.75 + 2 * 0.0) / 5);
}

TEST(GroupMetrics, IsUndefinedWithoutAGroupOfBothLabels) {
  Grouped samples;
  samples.add(1, 2, 1);
  samples.add(2, 1, 0);
  EXPECT_FALSE(alone(samples).gauc);
  EXPECT_FALSE(alone(Grouped{}).gauc);
}

TEST(GroupMetrics, CountsTheFirstPlacesOfEachGroup) {
  Grouped samples;
  // Group 3: the click is second of three.
  samples.add(3, 2, 0);
  samples.add(3, 1, 1);
  samples.add(3, 0, 0);
  // Group 4: two clicks, first and third.
  samples.add(4, 5, 1);
  samples.add(4, 4, 0);
  samples.add(4, 3, 1);
  samples.add(7, 3, 0);  // no click
  const GroupScores scores = alone(samples, {1, 2, 9});
  EXPECT_EQ(scores.clicked_groups, 2);
  ASSERT_EQ(scores.top.size(), 3U);
  EXPECT_DOUBLE_EQ(*scores.top[0].ndcg, (0 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*scores.top[0].hit_rate, 0.5);
  const double second = 1 / std::log2(3);
  EXPECT_DOUBLE_EQ(*scores.top[1].ndcg, (second + 1 / (1 + second)) / 2);
  EXPECT_DOUBLE_EQ(*scores.top[1].hit_rate, 1);
  EXPECT_DOUBLE_EQ(*scores.top[2].ndcg, (second + (1 + 0.5) / (1 + second)) / 2);
}

TEST(GroupMetrics, HasNoFirstPlacesWithoutAClick) {
  Grouped samples;
  samples.add(1, 2, 0);
  const GroupScores scores = alone(samples, {3});
  EXPECT_EQ(scores.clicked_groups, 0);
  ASSERT_EQ(scores.top.size(), 1U);
  EXPECT_EQ(scores.top[0].k, 3);
  EXPECT_FALSE(scores.top[0].ndcg);
  EXPECT_FALSE(scores.top[0].hit_rate);
}

// scikit-learn's NDCG, and the hit rate over every order of equal scores (tools/reference/ranking_metrics.py).
TEST(GroupMetrics, EqualsTheReference) {
  std::ifstream file(test::test_data() + "/golden/ranking_metrics.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  Grouped samples;
  int32_t group = 0;
  for (const auto& one : golden.at("groups")) {
    for (size_t i = 0; i < one.at("labels").size(); ++i)
      samples.add(group, one.at("scores")[i].get<float>(), one.at("labels")[i].get<float>());
    ++group;
  }
  std::vector<int64_t> places;
  for (const auto& top : golden.at("top")) places.push_back(top.at("k"));
  const GroupScores scores = alone(samples, places);
  EXPECT_EQ(scores.clicked_groups, golden.at("clicked_groups"));
  ASSERT_EQ(scores.top.size(), places.size());
  for (size_t p = 0; p < places.size(); ++p) {
    EXPECT_NEAR(*scores.top[p].ndcg, golden.at("top")[p].at("ndcg").get<double>(), 1e-12) << places[p];
    EXPECT_NEAR(*scores.top[p].hit_rate, golden.at("top")[p].at("hit_rate").get<double>(), 1e-12)
        << places[p];
  }
}

TEST(GroupMetrics, IsTheSameOnEveryNumberOfRanks) {
  Grouped samples;
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    const auto group = static_cast<int32_t>(random() % 90) - 1;
    const bool large = group > 0 && group % 2 == 0;  // up to the last row that a table may have
    samples.add(large ? std::numeric_limits<int32_t>::max() - group : group,
                static_cast<float>(random() % 40) / 8 - 2, random() % 3 == 0 ? 1.0F : 0.0F);
  }
  const std::vector<int64_t> places{1, 10};
  const GroupScores expected = alone(samples, places);
  ASSERT_TRUE(expected.gauc);
  EXPECT_GT(expected.groups, 80);
  for (const int count : {2, 3, 4}) {
    test::run_ranks(count, [&](Communicator& world) {
      test::OwnStream stream;
      GroupMetrics metric(places);
      Grouped mine = samples;
      // Rank 0 has nothing; the others take batches in turn.
      for (int64_t begin = 0, turn = 0; begin < mine.size(); begin += 100, ++turn)
        if (1 + turn % (world.size() - 1) == world.rank()) mine.give(metric, begin, begin + 100);
      const GroupScores scores = metric.finish(world, stream);
      EXPECT_EQ(*scores.gauc, *expected.gauc);
      EXPECT_EQ(scores.groups, expected.groups);
      EXPECT_EQ(scores.samples, expected.samples);
      EXPECT_EQ(scores.clicked_groups, expected.clicked_groups);
      for (size_t p = 0; p < places.size(); ++p) {
        EXPECT_EQ(*scores.top[p].ndcg, *expected.top[p].ndcg);
        EXPECT_EQ(*scores.top[p].hit_rate, *expected.top[p].hit_rate);
      }
    });
  }
}

}  // namespace
}  // namespace trifold
