// The step of a model with embedding tables as a plan: text, order, times.
#include "schedule/table_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/error.h"

namespace trifold {
namespace {

std::string message(const RankPlan& row, const TableStepShape& shape) {
  try {
    check_table_step(row, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "none";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

constexpr TableStepShape kShapes[] = {{}, {false}, {true, true}, {false, true, false}};

TEST(TableStep, HasATextFormThatIsReadBack) {
  EXPECT_EQ(to_string(Plan{table_step({})}),
            "0READ,0LOOKUP,0F0,0COLLECT,1F0,1I0,0RETURN,1W0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0LOSS,"
            "0UPDATE_ROWS,0STEP\n");
  EXPECT_EQ(to_string(Plan{table_step({.has_bottom = false, .clips = true})}),
            "0READ,0LOOKUP,0COLLECT,0F0,0I0,0RETURN,0W0,0REDUCE_GRAD,0LOSS,0NORM,0UPDATE_ROWS,0STEP\n");
  for (const TableStepShape& shape : kShapes) {
    const Plan plan{table_step(shape)};
    EXPECT_EQ(parse_plan(to_string(plan)), plan);
  }
}

TEST(TableStep, IsRight) {
  for (const TableStepShape& shape : kShapes) EXPECT_EQ(message(table_step(shape), shape), "none");
}

TEST(TableStep, WithoutAnActionOrWithOneTwiceIsRefused) {
  for (const TableStepShape& shape : kShapes) {
    const RankPlan row = table_step(shape);
    for (size_t i = 0; i < row.size(); ++i) {
      RankPlan shorter = row, longer = row;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_NE(message(shorter, shape), "none") << to_string(row[i]);
      longer.push_back(row[i]);
      expect_contains(message(longer, shape), "it occurs twice");
    }
  }
}

TEST(TableStep, InAnotherOrderIsRefused) {
  const auto message_of = [](const std::string& text) { return message(parse_plan(text).front(), {}); };
  expect_contains(
      message_of("0READ,0LOOKUP,0F0,1F0,0COLLECT,1I0,0RETURN,1W0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0LOSS,"
                 "0UPDATE_ROWS,0STEP"),
      "the plan is wrong at action 4, 1F0: it comes before 0COLLECT");
  expect_contains(message_of("0READ,0LOOKUP,0F0,0COLLECT,1F0,1I0,0RETURN,1W0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,"
                             "0UPDATE_ROWS,0LOSS,0STEP"),
                  "0UPDATE_ROWS: it comes before 0LOSS");
  expect_contains(
      message_of("0READ,0LOOKUP,0F0,0COLLECT,1F0,1I0,0RETURN,1W0,1REDUCE_GRAD,0REDUCE_GRAD,0B0,0LOSS,"
                 "0UPDATE_ROWS,0STEP"),
      "0REDUCE_GRAD: it comes before 0B0");
  expect_contains(message_of("0READ,0NORM"), "0NORM: it does not belong to a step of this model");
  expect_contains(message_of("0READ,0SEND_F0"), "0SEND_F0: it does not belong to a step of this model");
}

// Any order that keeps what each action needs is as good.
TEST(TableStep, TheNextBatchMayBeReadLater) {
  RankPlan row = table_step({});
  std::rotate(row.begin(), row.begin() + 1, row.end());
  EXPECT_EQ(message(row, {}), "none");
}

// Seconds by action; 0 of all others.
using Cost = std::map<std::string, double>;
const Cost kCost{{"0READ", 40}, {"0LOOKUP", 5}, {"0COLLECT", 9}, {"0RETURN", 20},     {"0F0", 3},  {"1F0", 4},
                 {"1I0", 6},    {"1W0", 7},     {"0B0", 2},      {"0UPDATE_ROWS", 8}, {"0STEP", 1}};

Simulation simulated(const Cost& cost, const TableStepShape& shape = {}) {
  return simulate_table_step(table_step(shape), shape, [&](const Action& action) {
    const auto found = cost.find(to_string(action));
    return found == cost.end() ? 0.0 : found->second;
  });
}

double makespan(const Cost& cost, const TableStepShape& shape = {}) {
  return simulated(cost, shape).makespan;
}

TEST(TableStep, ExchangesOverlapWithComputation) {
  Cost cost = kCost;
  cost["0READ"] = 0;
  const double computed = 5 + 4 + 6 + 8 + 1;
  EXPECT_DOUBLE_EQ(makespan(cost), computed + 9 + 20);
  cost["0COLLECT"] = 2;
  cost["0RETURN"] = 8.5;
  EXPECT_DOUBLE_EQ(makespan(cost), computed + 3 + 9);
  cost["0READ"] = 30;
  EXPECT_DOUBLE_EQ(makespan(cost), 5 + 3 + 4 + 6 + 9 + 8 + 1);
  cost["0READ"] = 50;
  EXPECT_DOUBLE_EQ(makespan(cost), 50);
  EXPECT_DOUBLE_EQ(makespan(cost, {.fetches_ahead = false}), 50 + 36);
}

TEST(TableStep, TheTimelineIsThatOfThreeLines) {
  const Simulation simulation = simulated(kCost);
  EXPECT_EQ(simulation.ranks.size(), 3U);
  double last[] = {0, 0, 0};
  for (const TimelineEntry& entry : simulation.timeline) {
    ASSERT_TRUE(0 <= entry.rank && entry.rank < 3);
    EXPECT_GE(entry.begin, last[entry.rank]) << to_string(entry.action);
    EXPECT_EQ(entry.communication, entry.rank != 0);
    last[entry.rank] = entry.end;
  }
  EXPECT_DOUBLE_EQ(simulation.ranks[0].busy, 36);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].busy, 29);
  EXPECT_DOUBLE_EQ(simulation.ranks[2].busy, 40);
}

}  // namespace
}  // namespace trifold
