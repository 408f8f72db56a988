#include "recommend/planning/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/commands/commands.h"
#include "core/error.h"
#include "plan/layout_search.h"

namespace trifold {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// Two tables of a million rows of 64 numbers (0.25 GiB each) and three small ones.
PlanRecommenderConfig five_tables(int ranks) {
  PlanRecommenderConfig config;
  config.run.data.table_rows = TableRows{NumberList{1'000'000, 1'000'000, 5000, 300, 20}};
  config.run.model.embedding_dim = 64;
  config.run.model.bottom_mlp = NumberList{512, 256, 64};
  config.run.training.global_batch_size = 16384;
  config.run.mesh.ranks = ranks;
  config.search = true;
  return config;
}

RecommenderSearch search(const PlanRecommenderConfig& config) { return search_recommender(resolve(config)); }

// The figures of a layout are those of `trifold plan` with its options, and no other that fits is much faster.
TEST(RecommenderSearch, FindsTheShortestStepOfAllThatFit) {
  PlanRecommenderConfig config = five_tables(8);
  config.run.placement.memory_limit = 0.4;
  const RecommenderSearch found = search(config);
  // 1 rank; 2, 4 and 8 with five placements and two numbers for vectors each.
  EXPECT_EQ(found.layouts, 1 + 3 * 5 * 2);
  ASSERT_FALSE(found.best.empty());
  EXPECT_LE(found.best.size(), 10U);
  for (const FoundRecommender& each : found.best) {
    PlanRecommenderConfig one = config;
    one.search = false;
    one.run = each.run;
    const RecommendPlan plan = make_recommend_plan(resolve(one));
    EXPECT_EQ(plan.step.times.step, each.step_seconds);
    size_t most = 0;
    for (const RecommenderMemory& memory : plan.memory) most = std::max(most, memory.total());
    EXPECT_EQ(most, each.bytes);
    EXPECT_LE(static_cast<double>(each.bytes), 0.4 * kGib);
    EXPECT_GE(each.step_seconds, (1 - kSearchTie) * found.best.front().step_seconds);
    EXPECT_NE(each.bound.find(" %"), std::string::npos) << each.bound;
  }
  const std::vector<std::string>& words = found.best.front().words;
  EXPECT_EQ(words.front(), fmt::format("--ranks {}", found.best.front().run.mesh.ranks));
}

// One rank would hold all tables and send nothing; a limit below them makes it two.
TEST(RecommenderSearch, AMemoryLimitTakesMoreRanks) {
  PlanRecommenderConfig config = five_tables(2);
  config.link_latency = 1e5;  // so that ranks do not pay
  EXPECT_EQ(search(config).best.front().run.mesh.ranks, 1);
  config.run.placement.memory_limit = 0.45;
  const RecommenderSearch limited = search(config);
  for (const FoundRecommender& each : limited.best) EXPECT_EQ(each.run.mesh.ranks, 2);
  EXPECT_LT(limited.fitting, limited.layouts);
}

TEST(RecommenderSearch, ReportsThatNothingFitsAndTheSmallestLayout) {
  PlanRecommenderConfig config = five_tables(2);
  config.run.placement.memory_limit = 0.01;
  try {
    search(config);
    FAIL() << "half a GiB of tables fits in 0.01 GiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    const std::string text = error.what();
    EXPECT_NE(text.find("none of 11 placements fits in 0.01 GiB per rank: the smallest, "), std::string::npos)
        << text;
    EXPECT_NE(text.find("--ranks 2 --placement "), std::string::npos) << text;
  }
}

// Vectors that shall travel in bf16 do in all layouts.
TEST(RecommenderSearch, KeepsTheGivenExchangeFormat) {
  PlanRecommenderConfig config = five_tables(4);
  config.run.placement.bf16_exchange = true;
  const RecommenderSearch found = search(config);
  EXPECT_EQ(found.layouts, 1 + 2 * 5);
  for (const FoundRecommender& each : found.best) EXPECT_TRUE(each.run.placement.bf16_exchange);
}

}  // namespace
}  // namespace trifold
