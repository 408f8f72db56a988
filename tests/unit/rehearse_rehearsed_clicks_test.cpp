// The simulated step of a recommender from made-up measurements whose result is known by hand.
#include "rehearse/rehearsed_clicks.h"

#include <gtest/gtest.h>

#include "config/commands/commands.h"

namespace trifold {
namespace {

RecommendPlan plan_of(int ranks) {
  PlanRecommenderConfig config;
  config.run.data.table_rows = TableRows{NumberList{5000, 300, 20}};
  config.run.mesh.ranks = ranks;
  config.run.training.global_batch_size = 1024;
  config.link_bandwidth = 1e9;
  config.link_latency = 0;
  return make_recommend_plan(resolve(config));
}

// Stage 0 is the bottom MLP, stage 1 the top.
RehearsedRank rank_with(double lookup, double top_forward) {
  RehearsedRank rank;
  rank.actions = {{ActionKind::Lookup, 0, 1, lookup}, {ActionKind::F, 0, 1, 2},
                  {ActionKind::F, 1, 1, top_forward}, {ActionKind::I, 1, 1, 4},
                  {ActionKind::W, 1, 1, 5},           {ActionKind::B, 0, 1, 6},
                  {ActionKind::UpdateRows, 0, 1, 7},  {ActionKind::Step, 0, 1, 8}};
  return rank;
}

// Links take no time worth mentioning, so the step is the sum of its actions: blocks by their mean over the ranks, tables
// by the slowest.
TEST(RehearsedClicks, PutMeasuredTimesIntoTheStep) {
  const RecommendPlan plan = plan_of(4);
  const std::vector<RehearsedRank> ranks{rank_with(1, 3), rank_with(1.5, 3.5)};
  const auto step = simulate_rehearsed(plan, ranks, false);
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->step, 1.5 + 2 + 3.25 + 4 + 5 + 6 + 7 + 8, 1e-6);
}

TEST(RehearsedClicks, ComparesEachActionWithItsPlan) {
  const RecommendPlan plan = plan_of(4);
  const RehearsedRank rank = rank_with(1, 3);
  const auto planned = planned_actions(plan, rank);
  ASSERT_EQ(planned.size(), rank.actions.size());
  EXPECT_NEAR(*planned[0], plan.step.times[StepPart::Lookups], 1e-9);
  EXPECT_NEAR(*planned[1], plan.step.times[StepPart::Bottom], 1e-9);
}

TEST(RehearsedClicks, NothingMeasuredIsNoStep) {
  EXPECT_FALSE(simulate_rehearsed(plan_of(2), std::vector<RehearsedRank>(1), false));
}

}  // namespace
}  // namespace trifold
