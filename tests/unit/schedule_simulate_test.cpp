#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

using Json = nlohmann::json;
using test::complete;

CostModel costs(int stages, const StageCost& each) {
  CostModel cost;
  cost.stages.assign(static_cast<size_t>(stages), each);
  return cost;
}

Simulation simulate_uniform(const test::Complete& plan, const StageCost& each) {
  return simulate(plan.plan, plan.shape, costs(plan.shape.stages, each));
}

template <class Get>
auto column(const Simulation& simulation, Get get) {
  std::vector<decltype(get(simulation.ranks[0]))> values;
  for (const SimulatedRank& rank : simulation.ranks) values.push_back(get(rank));
  return values;
}

// The golden numbers and the closed form of DualPipe-V are of pairs that begin and end as one.
test::Complete complete_with_pairs(Schedule schedule, int ranks, int chunks, int micros) {
  return complete(make_schedule(schedule, ranks, chunks, micros), micros, false, 1, Pairs::Together);
}

TEST(Simulate, AgreesWithEveryGoldenEntry) {
  const Json golden = Json::parse(test::golden_text("schedules.json")).at("schedules");
  for (const Json& entry : golden) {
    const auto plan = complete_with_pairs(find_schedule(entry.at("schedule").get<std::string>()).value(),
                                          entry.at("p"), entry.at("chunks_per_rank"), entry.at("m"));
    const Simulation simulation = simulate_uniform(plan, {});
    const std::string name =
        entry.at("schedule").dump() + " p " + entry.at("p").dump() + " m " + entry.at("m").dump();
    EXPECT_EQ(simulation.makespan, entry.at("makespan").get<double>()) << name;
    EXPECT_EQ(column(simulation, [](const SimulatedRank& rank) { return rank.idle; }),
              entry.at("idle_per_rank").get<std::vector<double>>())
        << name;
    EXPECT_EQ(column(simulation, [](const SimulatedRank& rank) { return rank.own_span_idle; }),
              entry.at("own_span_idle").get<std::vector<double>>())
        << name;
    EXPECT_EQ(column(simulation, [](const SimulatedRank& rank) { return rank.peak_in_flight; }),
              entry.at("peak_in_flight_chunks").get<std::vector<int>>())
        << name;
  }
  EXPECT_EQ(golden.size(), 38U);
}

struct Expected {
  double idle;  // of a rank, all of them alike; of zb-h2 and zb-v within their own span
  int peak;     // micro-batches times chunks kept on rank r
};

// Section 4 of the papers' closed forms: p ranks, m micro-batches, v chunks.
Expected closed_form(Schedule schedule, int p, int v, int m, int r, const StageCost& c) {
  const double b = c.whole_backward();
  switch (schedule) {
    case Schedule::Gpipe:
      return {(p - 1) * (c.f + b), m};
    case Schedule::OneFOneB:
      return {(p - 1) * (c.f + b), std::min(p - r, m)};
    case Schedule::Interleaved:
      return {(p - 1) * (c.f + b), std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v)};
    case Schedule::ZbH1:
      return {(p - 1) * (c.f + c.i - c.w), p};
    case Schedule::ZbH2:
      return {(p - 1) * (c.f + c.i - 2 * c.w), 2 * p - 1};
    case Schedule::ZbV:
      return {0, 2 * p};
    default:  // DualPipe-V: p stands for 2p ranks of DualPipe
      return {(p - 1) * (c.f + b + b - 3 * c.w), 2 * p + 1};
  }
}

void expect_closed_form(Schedule schedule, int p, int v, int m, const StageCost& cost) {
  const Simulation simulation = simulate_uniform(complete_with_pairs(schedule, p, v, m), cost);
  const bool own_span = schedule == Schedule::ZbH2 || schedule == Schedule::ZbV;
  for (int r = 0; r < p; ++r) {
    const SimulatedRank& rank = simulation.ranks[static_cast<size_t>(r)];
    const Expected expected = closed_form(schedule, p, v, m, r, cost);
    EXPECT_NEAR(own_span ? rank.own_span_idle : rank.idle, expected.idle, 1e-9 * simulation.makespan)
        << schedule_name(schedule) << " p " << p << " v " << v << " m " << m << " rank " << r;
    EXPECT_EQ(rank.peak_in_flight, expected.peak)
        << schedule_name(schedule) << " p " << p << " v " << v << " m " << m << " rank " << r;
  }
}

TEST(Simulate, IdleTimeAndPeaksAreTheClosedForms) {
  const StageCost even{};
  const StageCost uneven{.f = 2, .i = 2.5, .w = 1.75};
  const StageCost merged{.f = 2, .i = 2.5, .w = 1.75, .b = 3.5};  // less than i + w
  for (int p : {1, 2, 3, 4, 8, 16}) {
    for (int m : {1, 2, p, 2 * p, 5 * p + 3}) {
      for (const StageCost& cost : {even, uneven, merged}) {
        expect_closed_form(Schedule::Gpipe, p, 1, m, cost);
        expect_closed_form(Schedule::OneFOneB, p, 1, m, cost);
      }
    }
    for (int m : {2 * p, 3 * p, 6 * p}) {
      for (int v : {2, 3, 4}) expect_closed_form(Schedule::Interleaved, p, v, m, even);
      expect_closed_form(Schedule::ZbH1, p, 1, m, even);
      expect_closed_form(Schedule::ZbH2, p, 1, m, even);
      expect_closed_form(Schedule::ZbV, p, 2, m, even);
      expect_closed_form(Schedule::DualPipeV, p, 2, m, even);
      expect_closed_form(Schedule::ZbH1, p, 1, m, uneven);
    }
  }
}

// One after the other, the first of a pair sends while the second runs: less idle time than as one.
TEST(Simulate, PairsTakenApartAreFaster) {
  EXPECT_EQ(simulate_uniform(complete(Schedule::DualPipeV, 4, 2, 8), {}).makespan, 51);
  EXPECT_EQ(simulate_uniform(complete_with_pairs(Schedule::DualPipeV, 4, 2, 8), {}).makespan, 54);
}

// On ranks that compute both halves at once. Of one micro-batch, the backward waits for the forward.
TEST(Simulate, OverlappedPairsTakeAsLongAsTheLongerHalf) {
  const auto makespan = [](const char* text, int micros, bool overlap) {
    const auto plan = complete(parse_plan(text), micros, false, 1, Pairs::Together);
    CostModel cost = costs(1, {});
    cost.pairs = overlap ? PairExecution::Concurrent : PairExecution::Sequential;
    const Simulation simulation = simulate(plan.plan, plan.shape, cost);
    EXPECT_DOUBLE_EQ(simulation.ranks[0].busy, simulation.makespan);
    EXPECT_EQ(simulation.timeline.size(), plan.plan[0].size());
    return simulation.makespan;
  };
  EXPECT_EQ(makespan("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 2, false), 6);
  EXPECT_EQ(makespan("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 2, true), 5);
  EXPECT_EQ(makespan("(0F0;0B0)OVERLAP_F_B,(0F1;0B1)OVERLAP_F_B", 2, true), 6);
}

// An exchange is hidden as far as the other half computes.
TEST(Simulate, PairsThatTakeTurnsHideExchanges) {
  const auto plan = complete(parse_plan("0F0,(0F1;0B0)OVERLAP_F_B,0B1"), 2, false, 1, Pairs::Together);
  const auto makespan = [&](double f_exchanges, double b_exchanges) {
    CostModel cost = costs(1, {});
    cost.stages[0].f = 1 + f_exchanges;
    cost.stages[0].b = 2 + b_exchanges;
    cost.stages[0].f_exchanges = f_exchanges;
    cost.stages[0].b_exchanges = b_exchanges;
    const double apart = simulate(plan.plan, plan.shape, cost).makespan;
    EXPECT_DOUBLE_EQ(apart, 6 + 2 * f_exchanges + 2 * b_exchanges);
    cost.pairs = PairExecution::Alternating;
    const Simulation simulation = simulate(plan.plan, plan.shape, cost);
    EXPECT_DOUBLE_EQ(simulation.ranks[0].busy, simulation.makespan);
    EXPECT_EQ(simulation.timeline[1].half, 1);
    EXPECT_EQ(simulation.timeline[2].half, 2);
    EXPECT_EQ(simulation.timeline[1].begin, simulation.timeline[2].begin);
    EXPECT_EQ(simulation.timeline[1].end, simulation.timeline[2].end);
    EXPECT_EQ(simulation.timeline[0].half, 0);
    return apart - simulation.makespan;
  };
  EXPECT_DOUBLE_EQ(makespan(0, 0), 0);
  EXPECT_DOUBLE_EQ(makespan(0.5, 0.25), 0.75);
  EXPECT_DOUBLE_EQ(makespan(1.5, 0.75), 2.25);
  EXPECT_DOUBLE_EQ(makespan(5, 0), 2) << "behind a backward that computes for 2";
  EXPECT_DOUBLE_EQ(makespan(0, 5), 1) << "behind a forward that computes for 1";
  EXPECT_DOUBLE_EQ(makespan(5, 5), 3);
}

// In the steady state no rank waits; the remaining idle time is filling and draining the window once.
TEST(Simulate, AsynchronousSchedulesIdleOnceAWindow) {
  for (int p : {2, 4, 8}) {
    const auto pipedream = complete(make_async(Schedule::PipeDream, p, 1, 8 * p), 8 * p);
    const Simulation simulation = simulate_uniform(pipedream, {});
    for (int r = 0; r < p; ++r) {
      const SimulatedRank& rank = simulation.ranks[static_cast<size_t>(r)];
      EXPECT_EQ(rank.idle, 3.0 * (p - 1));
      EXPECT_EQ(rank.peak_in_flight, p - r);
      EXPECT_EQ(rank.versions, p - r);
    }
    const auto buffered = complete(make_async(Schedule::PipeDream2BW, p, p, 5), 5 * p);
    for (const SimulatedRank& rank : simulate_uniform(buffered, {}).ranks) EXPECT_EQ(rank.versions, 2);
  }
}

TimelineEntry entry_of(const Simulation& simulation, const std::string& action) {
  for (const TimelineEntry& entry : simulation.timeline)
    if (to_string(entry.action) == action) return entry;
  ADD_FAILURE() << action << " is not in the timeline";
  return {};
}

void expect_span(const Simulation& simulation, const std::string& action, double begin, double end) {
  const TimelineEntry entry = entry_of(simulation, action);
  EXPECT_DOUBLE_EQ(entry.begin, begin) << action;
  EXPECT_DOUBLE_EQ(entry.end, end) << action;
}

// Two ranks, two micro-batches, F 1, B 2; a message takes 0.5 + 100 / 200 = 1.
TEST(Simulate, MessagesTakeTimeAndComputationGoesOnUnderThem) {
  const auto plan = complete(Schedule::OneFOneB, 2, 1, 2);
  CostModel cost = costs(2, {.f = 1, .i = 1, .w = 1, .message_bytes = 100});
  cost.message_seconds = 0.5;
  cost.bytes_per_second = 200;
  const Simulation simulation = simulate(plan.plan, plan.shape, cost);
  expect_span(simulation, "0F0", 0, 1);
  expect_span(simulation, "0F1", 1, 2);
  expect_span(simulation, "0SEND_F0", 1, 2);  // under 0F1
  expect_span(simulation, "1RECV_F0", 1, 2);
  expect_span(simulation, "1F0", 2, 3);
  expect_span(simulation, "1RECV_F1", 2, 3);  // posted before 1F0, so it overlaps with that
  expect_span(simulation, "1B0", 3, 5);
  expect_span(simulation, "1SEND_B0", 5, 6);
  expect_span(simulation, "1F1", 5, 6);
  expect_span(simulation, "0B0", 6, 8);
  expect_span(simulation, "1B1@0", 6, 8);
  expect_span(simulation, "0RECV_B1", 8, 9);
  expect_span(simulation, "0B1@0", 9, 11);
  EXPECT_DOUBLE_EQ(simulation.makespan, 11);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].busy, 6);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].idle, 5);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].own_span_idle, 0);
  EXPECT_DOUBLE_EQ(simulation.bubble, 10.0 / 22);
  EXPECT_EQ(simulation.ranks[0].sent_bytes, 200U);
  EXPECT_TRUE(entry_of(simulation, "0SEND_F0").communication);
  EXPECT_FALSE(entry_of(simulation, "0F0").communication);
}

// Reductions overlap with the backward of earlier blocks; the Step waits for them.
TEST(Simulate, ReductionsAndStepsTakeTheirShare) {
  const PlanShape shape{.stages = 1, .micros = 1, .blocks = {4}, .bucket_ends = {{1, 0}}};
  const Plan plan = add_reduce(one_stage(1), shape.blocks, shape.bucket_ends);
  const Simulation simulation =
      simulate(plan, shape, costs(1, {.f = 4, .i = 4, .w = 4, .reduce = 8, .step = 3}));
  expect_span(simulation, "0B0@2", 6, 8);
  expect_span(simulation, "0REDUCE_GRAD@1", 10, 16);  // three of four blocks
  expect_span(simulation, "0B0@0", 10, 12);
  expect_span(simulation, "0REDUCE_GRAD@0", 16, 18);
  expect_span(simulation, "0STEP", 18, 21);
  EXPECT_DOUBLE_EQ(simulation.makespan, 21);
}

// F 1, I 1, W 1 but B 1.5, of a stage of two blocks.
TEST(Simulate, AWholeBackwardHasItsOwnCost) {
  const StageCost cost{.b = 1.5};
  EXPECT_DOUBLE_EQ(simulate_uniform(complete(Schedule::OneFOneB, 2, 1, 4), cost).makespan, 5 * 2.5);
  // If I and W are separate, each takes its own time.
  EXPECT_DOUBLE_EQ(simulate_uniform(complete(Schedule::ZbH1, 2, 1, 4), cost).makespan,
                   simulate_uniform(complete(Schedule::ZbH1, 2, 1, 4), {}).makespan);
  const PlanShape shape{.stages = 1, .micros = 1, .blocks = {2}, .bucket_ends = {{1, 0}}};
  const Plan plan = add_reduce(one_stage(1), shape.blocks, shape.bucket_ends);
  expect_span(simulate(plan, shape, costs(1, cost)), "0B0@0", 1.75, 2.5);
}

TEST(Simulate, TheTiedReductionWaitsForTheLaterRank) {
  const auto plan = complete(Schedule::Gpipe, 2, 1, 1, true);
  CostModel cost = costs(2, {.step = 1});
  cost.tied_seconds = 0.25;
  const Simulation simulation = simulate(plan.plan, plan.shape, cost);
  expect_span(simulation, "0REDUCE_TIED", 6, 6.25);
  expect_span(simulation, "1REDUCE_TIED", 6, 6.25);
  EXPECT_DOUBLE_EQ(simulation.makespan, 7.25);
}

// 1F1B on two ranks keeps two micro-batches on the first; zb keeps what W needs from I on.
TEST(Simulate, CountsMemoryOfMicroBatchesWeightsAndVersions) {
  const StageCost cost{.kept_bytes = 1000, .held_bytes = 10, .parameter_bytes = 70, .state_bytes = 5};
  EXPECT_EQ(column(simulate_uniform(complete(Schedule::OneFOneB, 2, 1, 4), cost),
                   [](const SimulatedRank& rank) { return rank.peak_bytes; }),
            (std::vector<size_t>{2075, 1075}));
  // Rank 1: F0 I0 F1 I1 W0 ...: both held at I1.
  EXPECT_EQ(column(simulate_uniform(complete(Schedule::ZbH1, 2, 1, 4), cost),
                   [](const SimulatedRank& rank) { return rank.peak_bytes; }),
            (std::vector<size_t>{2085, 2095}));
  EXPECT_EQ(column(simulate_uniform(complete(make_async(Schedule::PipeDream, 2, 1, 4), 4), cost),
                   [](const SimulatedRank& rank) { return rank.peak_bytes; }),
            (std::vector<size_t>{2145, 1075}));
  const PlanShape forward{.stages = 1, .micros = 3, .forward_only = true};
  EXPECT_EQ(simulate(forward_only(Schedule::Gpipe, 1, 1, 3), forward, costs(1, cost)).ranks[0].peak_bytes,
            1075U);
}

// The second stage's weight gradient reads the first one's output, which stays until then; a later stage on the same
// rank that is not the next one reads nothing there.
TEST(Simulate, AStagesMemoryStaysUntilTheNextStageOnItsRankHasReadIt) {
  const StageCost cost{.kept_bytes = 100};
  const auto peak = [&](const char* plan, int stages, size_t rank) {
    const PlanShape shape{.stages = stages, .micros = 2};
    return simulate(parse_plan(plan), shape, costs(stages, cost)).ranks[rank].peak_bytes;
  };
  // 0B0 is done while 1W0 is not: 0F1 needs a third place, 1F1 a fourth.
  EXPECT_EQ(peak("0F0,1F0,1I0,0B0,0F1,1F1,1W0,1I1,0B1,1W1,0STEP,1STEP", 2, 0), 400U);
  EXPECT_EQ(peak("0F0,1F0,1I0,0B0,1W0,0F1,1F1,1I1,0B1,1W1,0STEP,1STEP", 2, 0), 200U);
}

TEST(Simulate, TooMuchMemoryIsAnErrorThatSaysWhereAndWhen) {
  const auto plan = complete(Schedule::Gpipe, 2, 1, 4);
  CostModel cost = costs(2, {.kept_bytes = 1000, .parameter_bytes = 70, .state_bytes = 5});
  cost.memory_limit = 4075;
  EXPECT_NO_THROW(simulate(plan.plan, plan.shape, cost));
  cost.memory_limit = 3500;
  try {
    simulate(plan.plan, plan.shape, cost);
    FAIL() << "4075 bytes fit into 3500";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(
        std::string(error.what())
            .find("rank 0 needs 3.98 KiB of memory, 575 B more than the limit of 3.42 KiB, at 0F3 (rank 0, "
                  "action 7), 3 s after the start: 75 B for weights, gradients and optimizer (1 weight "
                  "version) and 3.91 KiB for 4 micro-batches in flight; 2 of 2 ranks are over the limit."),
        0U)
        << error.what();
  }
  cost.memory_limit = 70;
  try {
    simulate(plan.plan, plan.shape, cost);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer state sharded"), std::string::npos) << error.what();
  }
}

// 1.6 million actions: half a second; the test's time limit finds what grows faster than the plan.
TEST(Simulate, ALargePlanTakesNoLongerThanItsActions) {
  const auto plan = complete(Schedule::Interleaved, 128, 4, 512);
  CostModel cost = costs(512, {});
  cost.timeline = false;
  const Simulation simulation = simulate(plan.plan, plan.shape, cost);
  EXPECT_EQ(simulation.makespan, 3.0 * (4 * 512 + 127));
}

TEST(Simulate, TheTimelineHasEveryActionOnceAndIsInOrder) {
  const auto plan = complete(Schedule::DualPipeV, 4, 2, 10);
  const Simulation simulation = simulate_uniform(plan, {});
  size_t actions = 0;
  for (const RankPlan& row : plan.plan) actions += row.size();
  EXPECT_EQ(simulation.timeline.size(), actions);
  EXPECT_TRUE(std::is_sorted(simulation.timeline.begin(), simulation.timeline.end(),
                             [](const TimelineEntry& a, const TimelineEntry& b) {
                               return a.rank != b.rank ? a.rank < b.rank : a.begin < b.begin;
                             }));
  CostModel quiet = costs(8, {});
  quiet.timeline = false;
  const Simulation without = simulate(plan.plan, plan.shape, quiet);
  EXPECT_TRUE(without.timeline.empty());
  EXPECT_EQ(without.makespan, simulation.makespan);
}

}  // namespace
}  // namespace trifold
