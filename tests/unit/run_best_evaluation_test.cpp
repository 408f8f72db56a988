#include "run/best_evaluation.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"

namespace trifold {
namespace {

using Better = BestEvaluation::Better;

TEST(BestEvaluation, CountsEvaluationsWithoutImprovement) {
  BestEvaluation best("AUC", Better::Higher);
  EXPECT_FALSE(best.ends_early(1));
  best.add(10, 0.6);
  best.add(20, 0.7);
  EXPECT_EQ(best.best_step(), 20);
  EXPECT_EQ(best.misses(), 0);
  best.add(30, 0.7);  // equal
  best.add(40, 0.69);
  best.add(50, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(best.best_step(), 20);
  EXPECT_EQ(best.last_step(), 50);
  EXPECT_EQ(best.misses(), 3);
  EXPECT_TRUE(best.ends_early(3));
  EXPECT_FALSE(best.ends_early(4));
  EXPECT_FALSE(best.ends_early(std::nullopt));
  EXPECT_EQ(best.text(), "3 evaluations after the best AUC, 0.70000 after step 20, were no better");
  best.add(60, 0.8);
  EXPECT_EQ(best.best_step(), 60);
  EXPECT_EQ(best.misses(), 0);
}

TEST(BestEvaluation, CountsNoEvaluationWithoutAValue) {
  BestEvaluation best("loss", Better::Lower);
  for (const int64_t step : {1, 2, 3}) best.add(step, std::nullopt);
  EXPECT_EQ(best.misses(), 0);
  EXPECT_FALSE(best.ends_early(1));
  EXPECT_EQ(best.last_step(), 3);
  best.add(4, 2.0);
  best.add(5, std::nullopt);
  EXPECT_EQ(best.best_step(), 4);
  EXPECT_EQ(best.misses(), 0);
}

TEST(BestEvaluation, KnowsThatALossIsBetterLower) {
  BestEvaluation best("loss", Better::Lower);
  best.add(1, 2.0);
  best.add(2, 3.0);
  EXPECT_EQ(best.best_step(), 1);
  best.add(3, 1.0);
  EXPECT_EQ(best.best_step(), 3);
}

TEST(BestEvaluation, GoesOnFromItsState) {
  BestEvaluation best("loss", Better::Lower);
  for (const bool has_value : {false, true}) {
    best = BestEvaluation("loss", Better::Lower);  // steps only grow
    best.add(has_value ? 2 : 1, has_value ? std::optional<double>(1.0 / 3) : std::nullopt);
    best.add(3, 0.5);
    const nlohmann::json state = nlohmann::json::parse(best.state().dump());
    BestEvaluation other("", Better::Lower);
    other.restore(JsonView(state), 6);
    EXPECT_EQ(other.text(), best.text());
    EXPECT_EQ(other.state(), best.state());
    best.add(4, 1.0 / 3);
    other.add(4, 1.0 / 3);
    EXPECT_EQ(other.state(), best.state());
  }
  best.leave_out(6);
  BestEvaluation other("", Better::Lower);
  const nlohmann::json state = nlohmann::json::parse(best.state().dump());
  other.restore(JsonView(state), 6);
  EXPECT_EQ(other.left_out(), 6);
  other.add(6, 0.5);
  EXPECT_EQ(other.left_out(), 0);
  EXPECT_FALSE(other.state().contains("left_out"));
  const nlohmann::json damaged = {
      {"metric", "loss"}, {"value", "x"}, {"step", 1}, {"last_step", 1}, {"misses", 0}};
  EXPECT_THROW(best.restore(JsonView(damaged), 6), Error);
  EXPECT_THROW(other.restore(JsonView(state), 5), Error);  // an evaluation of a step that was not done
}

}  // namespace
}  // namespace trifold
