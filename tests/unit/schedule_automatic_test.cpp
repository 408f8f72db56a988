#include "schedule/automatic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedule/greedy.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

Simulation simulated(const Plan& plan, int micros, CostModel cost) {
  const test::Complete whole = test::complete(plan, micros);
  cost.timeline = false;
  return simulate(whole.plan, whole.shape, cost);
}

int most_kept(const Simulation& simulation) {
  int most = 0;
  for (const SimulatedRank& rank : simulation.ranks) most = std::max(most, rank.peak_in_flight);
  return most;
}

CostModel stages(std::vector<StageCost> each) {
  CostModel cost;
  cost.stages = std::move(each);
  return cost;
}

struct RandomCase {
  AutomaticTask task;
  CostModel cost;
};

// Stages that differ by up to four times; of every third case a whole backward is cheaper than its parts, of
// every second messages take time.
RandomCase random_case(int number) {
  std::mt19937 generator(static_cast<unsigned>(number));
  const auto among = [&](int count) { return static_cast<int>(generator() % static_cast<unsigned>(count)); };
  const auto between = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(generator()) / 4294967296.0;
  };
  RandomCase c;
  const int ranks = 2 + among(5);
  const int chunks = number % 4 == 0 ? 2 + among(2) : 1;
  c.task = {ranks, chunks, 1 + among(4 * ranks), 1 + among(2 * ranks)};
  c.cost.stages.resize(static_cast<size_t>(ranks) * static_cast<size_t>(chunks));
  c.cost.message_seconds = number % 2 == 0 ? 0 : between(0, 0.3);
  for (StageCost& stage : c.cost.stages) {
    stage.f = between(0.5, 2);
    stage.i = between(0.5, 2);
    stage.w = between(0.3, 2);
    if (number % 3 == 0) stage.b = between(0.8, 1) * (stage.i + stage.w);
  }
  return c;
}

TEST(AutomaticSchedule, IsNeverSlowerThanANamedOneAndKeepsWithinItsLimit) {
  int own = 0;
  int compared = 0;
  for (int number = 0; number < 300; ++number) {
    const auto [task, cost] = random_case(number);
    const AutomaticSchedule found = make_automatic(task, cost);
    const Simulation simulation = simulated(found.plan, task.micros, cost);
    const int limit = task.max_in_flight * task.chunks;
    EXPECT_LE(most_kept(simulation), limit) << "case " << number;
    EXPECT_NEAR(simulation.makespan, found.choice.seconds, 1e-9 * simulation.makespan) << "case " << number;
    own += found.choice.named ? 0 : 1;
    for (const std::string_view name : schedule_names()) {
      const Schedule schedule = *find_schedule(name);
      if (is_async(schedule) || schedule == Schedule::Auto) continue;
      if (!schedule_problem(schedule, task.ranks, task.chunks, task.micros).empty()) continue;
      const Simulation other =
          simulated(make_schedule(schedule, task.ranks, task.chunks, task.micros), task.micros, cost);
      if (most_kept(other) > limit) continue;
      EXPECT_LE(simulation.makespan, other.makespan * (1 + 1e-9)) << name << ", case " << number;
      ++compared;
    }
  }
  EXPECT_GT(own, 150);
  EXPECT_GT(compared, 500);
}

// Stages that take no time let forwards run ahead until every plan keeps too much but the strict ones.
TEST(AutomaticSchedule, KeepsWithinItsLimitWhereStagesTakeNoTime) {
  std::mt19937 generator(1001);
  const auto among = [&](int count) { return static_cast<int>(generator() % static_cast<unsigned>(count)); };
  const auto seconds = [&](int often) { return among(often) != 0 ? among(1000) / 300.0 : 0.0; };
  const int ranks = 1 + among(8), chunks = 1 + among(4), micros = 1 + among(3 * ranks);
  const int in_flight = 1 + among(2 * ranks);
  const bool looped = among(2) == 0;
  CostModel cost;
  cost.stages.resize(static_cast<size_t>(ranks * chunks));
  cost.message_seconds = among(2) != 0 ? 0 : among(1000) / 500.0;
  cost.bytes_per_second = 1e9;
  for (StageCost& stage : cost.stages) {
    stage.f = seconds(4);
    stage.i = seconds(4);
    stage.w = seconds(3);
  }
  const AutomaticSchedule found = make_automatic({ranks, chunks, micros, in_flight, looped}, cost);
  EXPECT_LE(most_kept(simulated(found.plan, micros, cost)), in_flight * chunks);
}

TEST(AutomaticSchedule, IsTheSameEveryTime) {
  for (const int number : {1, 4, 9}) {
    const auto [task, cost] = random_case(number);
    EXPECT_EQ(make_automatic(task, cost).plan, make_automatic(task, cost).plan);
  }
}

// A last stage with a large head: it is never idle from its first forward on, and its first forward cannot
// begin before those of the three ranks before it have ended.
TEST(AutomaticSchedule, KeepsTheSlowestRankBusy) {
  const CostModel cost = stages(
      {StageCost{}, {.f = 1, .i = 1.2, .w = 1}, {.f = 1, .i = 1.2, .w = 1}, {.f = 1.5, .i = 1.7, .w = 1.5}});
  EXPECT_NEAR(make_automatic({4, 1, 8, 4}, cost).choice.seconds, 3 + 8 * 4.7, 1e-9);
}

// If input gradients are long, the named orders leave gaps that weight gradients do not fill. Rules are compared by a
// part of a long step: 8 x 3 x 4000 actions are more than that.
TEST(AutomaticSchedule, IsShorterThanTheNamedOnes) {
  StageCost long_inputs;
  long_inputs.i = 2;
  long_inputs.w = 0.5;
  const CostModel cost = stages(std::vector<StageCost>(8, long_inputs));
  for (const int micros : {40, 4000}) {
    const AutomaticSchedule found = make_automatic({8, 1, micros, 10}, cost);
    EXPECT_FALSE(found.choice.named) << micros;
    EXPECT_LT(found.choice.seconds, found.choice.best_named_seconds) << micros;
    EXPECT_NEAR(simulated(found.plan, micros, cost).makespan, found.choice.seconds, 1e-6) << micros;
  }
}

// With stages alike, p - 1 forwards before the last rank's first and nothing else.
TEST(AutomaticSchedule, HasNoOtherBubbleThanTheWayToTheLastRank) {
  for (const int ranks : {2, 4, 8})
    for (const int in_flight : {ranks, 2 * ranks}) {
      const AutomaticSchedule found =
          make_automatic({ranks, 1, 3 * ranks, in_flight}, stages(std::vector<StageCost>(ranks)));
      EXPECT_EQ(found.choice.seconds, 3 * (3 * ranks) + ranks - 1) << ranks;
    }
}

// One micro-batch at a time: nothing overlaps but weight gradients with the way back.
TEST(AutomaticSchedule, RunsWithOneMicroBatchInFlight) {
  const AutomaticSchedule found = make_automatic({3, 1, 2, 1}, stages(std::vector<StageCost>(3)));
  EXPECT_FALSE(found.choice.best_named);
  EXPECT_EQ(to_string(found.plan), "0F0,0B0,0F1,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n2F0,2I0,2W0,2F1,2I1,2W1\n");
  EXPECT_EQ(found.choice.seconds, 14);
}

// The first and the last stage of a V lie on one rank.
TEST(AutomaticSchedule, CanBeKeptInALoop) {
  const CostModel even = stages(std::vector<StageCost>(8));
  AutomaticTask task{4, 2, 8, 8};
  const auto stage_zero_and_last = [](const Plan& plan) {
    bool both = false;
    for (const RankPlan& row : plan) {
      const auto has = [&](int stage) {
        return std::any_of(row.begin(), row.end(), [&](const Action& a) { return a.stage == stage; });
      };
      both = both || (has(0) && has(7));
    }
    return both;
  };
  EXPECT_TRUE(stage_zero_and_last(make_automatic(task, even).plan));  // zb-v is faster than interleaved
  task.looped = true;
  EXPECT_FALSE(stage_zero_and_last(make_automatic(task, even).plan));
}

// A forward, an input gradient and a weight gradient of every micro-batch, in an order that follows the rules.
TEST(GreedySchedule, FollowsItsRules) {
  const CostModel even = stages(std::vector<StageCost>(2));
  const GreedyTask task{{{0}, {1}}, 3, 3};
  EXPECT_EQ(to_string(make_greedy(task, even, {.lead = 1, .lag = 0, .gap = 0}).plan),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2\n");
  // Weight gradients wait until a forward or an input gradient is not there.
  EXPECT_EQ(to_string(make_greedy(task, even, {.lead = 1, .lag = 9, .gap = 1, .inputs_first = true}).plan),
            "0F0,0F1,0I0,0W0,0I1,0W1,0F2,0I2,0W2\n1F0,1I0,1F1,1I1,1W0,1W1,1F2,1I2,1W2\n");
}

}  // namespace
}  // namespace trifold
