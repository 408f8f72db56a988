#include "recommend/planning/forecast.h"

#include <gtest/gtest.h>

#include "config/commands/commands.h"

namespace trifold {
namespace {

RecommendPlan plan_of(int ranks) {
  PlanRecommenderConfig config;
  config.run.data.table_rows = TableRows{NumberList{5000, 300, 20}};
  config.run.mesh.ranks = ranks;
  config.run.training.global_batch_size = 1024;
  return make_recommend_plan(resolve(config));
}

// Powers of two: every sum of them is exact, and shows its parts.
constexpr MeasuredActions kActions{.bottom = {.f = 1, .b = 2},
                                   .top = {.f = 4, .i = 8, .w = 16},
                                   .lookups = 32,
                                   .update = 64,
                                   .dense_update = 128};

TEST(RecommenderForecast, MeasuredActionsReplaceTheFormulas) {
  const RecommendPlan plan = plan_of(1);
  RankRates rates = plan.rates;
  rates.measured = kActions;
  rates.fetch_of_sample = 1;
  for (const bool spare_core : {true, false}) {
    const PlannedStep step = predict_step(plan.setup, plan.loads, rates, spare_core);
    EXPECT_EQ(step.times[StepPart::Bottom], 1);
    EXPECT_EQ(step.times[StepPart::Top], 4 + 8);
    EXPECT_EQ(step.times[StepPart::WeightGradients], 16 + 2);
    EXPECT_EQ(step.times[StepPart::Lookups], 32);
    // One rank exchanges nothing: its computation is a step, or the fetch of 1024 seconds beside it.
    EXPECT_EQ(step.times.step, spare_core ? 1024 : 255 + 1024);
  }
}

// The exchanges of several ranks remain forecasts: the vectors arrive while the bottom computes, and the gradients travel
// while weight gradients are computed.
TEST(RecommenderForecast, ExchangesOverlapWithMeasuredActions) {
  const RecommendPlan plan = plan_of(2);
  RankRates rates = plan.rates;
  rates.measured = kActions;
  rates.link = 1e30;
  rates.latency = 0.5;
  const PlannedStep step = predict_step(plan.setup, plan.loads, rates, true);
  EXPECT_EQ(step.times[StepPart::Vectors], 0.5);
  EXPECT_EQ(step.times[StepPart::Update], 64);
  EXPECT_EQ(step.times[StepPart::DenseUpdate], 128 + 0.5);
  EXPECT_EQ(step.times.step, 255 + 0.5);
}

}  // namespace
}  // namespace trifold
