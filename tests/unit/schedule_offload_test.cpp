// Activations that leave memory: the pass that places OFFLOAD and FETCH, their checks, and their simulation.
#include <gtest/gtest.h>

#include "core/error.h"
#include "schedule/plan_memory.h"
#include "schedule/simulate.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

using test::Complete;

// Plans of `blocks` blocks a stage, the first `offloaded` of which leave.
Complete offloading(Schedule schedule, int ranks, int chunks, int micros, int blocks, int offloaded,
                    int ahead = 1) {
  const Plan compute =
      ranks * chunks == 1 ? one_stage(micros) : make_schedule(schedule, ranks, chunks, micros);
  Complete result = test::complete(compute, micros, false, blocks);
  result.shape.offloaded.assign(result.shape.blocks.size(), offloaded);
  result.plan = add_offload(std::move(result.plan), result.shape.blocks, result.shape.offloaded, ahead);
  return result;
}

TEST(OffloadPass, LeavesAfterTheNextForwardAndReturnsBeforeTheNextBackward) {
  EXPECT_EQ(to_string(offloading(Schedule::OneFOneB, 1, 1, 1, 4, 2).plan),
            "0F0@0,0F0@1,0OFFLOAD0@0,0F0@2,0OFFLOAD0@1,0F0@3,0FETCH0@1,0B0@3,0FETCH0@0,0B0@2,0B0@1,0B0@0,"
            "0REDUCE_GRAD@0,0STEP\n");
  // Two computations ahead: block 1 would come back before anything is computed, so it stays.
  EXPECT_EQ(to_string(offloading(Schedule::OneFOneB, 1, 1, 1, 4, 2, 2).plan),
            "0F0@0,0F0@1,0OFFLOAD0@0,0F0@2,0F0@3,0FETCH0@0,0B0@3,0B0@2,0B0@1,0B0@0,0REDUCE_GRAD@0,0STEP\n");
}

TEST(OffloadPass, KeepsPlansThatOffloadNothingOrThemselves) {
  const Plan plan = test::complete(Schedule::OneFOneB, 2, 1, 4, false, 3).plan;
  EXPECT_EQ(add_offload(plan, std::vector<int>{3, 3}, std::vector<int>{0, 0}), plan);
  const Plan given = offloading(Schedule::OneFOneB, 1, 1, 1, 4, 1).plan;
  EXPECT_EQ(add_offload(given, std::vector<int>{4}, std::vector<int>{3}), given);
}

int count(const RankPlan& row, ActionKind kind) {
  return static_cast<int>(
      std::count_if(row.begin(), row.end(), [&](const Action& action) { return action.kind == kind; }));
}

TEST(OffloadPass, GivesPlansThatPassTheCheckAndReadBack) {
  struct Case {
    Schedule schedule;
    int chunks;
  };
  for (const auto& [schedule, chunks] :
       {Case{Schedule::Gpipe, 1}, Case{Schedule::OneFOneB, 1}, Case{Schedule::Interleaved, 2},
        Case{Schedule::ZbH1, 1}, Case{Schedule::ZbH2, 1}, Case{Schedule::ZbV, 2},
        Case{Schedule::DualPipeV, 2}})
    for (const int offloaded : {1, 2}) {
      SCOPED_TRACE(schedule_name(schedule));
      const Complete made = offloading(schedule, 4, chunks, 8, 3, offloaded);
      EXPECT_NO_THROW(check_plan(made.plan, made.shape));
      EXPECT_EQ(parse_plan(to_string(made.plan)), made.plan);
      for (const RankPlan& row : made.plan) {
        EXPECT_EQ(count(row, ActionKind::Offload), count(row, ActionKind::Fetch));
        // The first block's activations always have the time to leave.
        EXPECT_GE(count(row, ActionKind::Offload), 8 * chunks);
      }
    }
}

std::string offload_error(const std::string& plan, const std::vector<int>& offloaded = {2}) {
  const PlanShape shape{.stages = 1, .micros = 1, .blocks = {3}, .offloaded = offloaded};
  try {
    check_plan(parse_plan(plan), shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OffloadCheck, NamesTheActionThatIsWrong) {
  const std::string forward = "0F0@0,0F0@1,0F0@2,";
  EXPECT_EQ(offload_error(forward + "0OFFLOAD0@0,0FETCH0@0,0B0,0STEP"), "no error");
  EXPECT_EQ(offload_error("0F0,0OFFLOAD0@1,0FETCH0@1,0B0@2,0B0@1,0B0@0,0STEP"), "no error");
  for (const auto& [plan, why] : std::vector<std::pair<std::string, std::string>>{
           {"0F0@0,0OFFLOAD0@0,0F0@1,0F0@2,0FETCH0@0,0B0,0STEP", "comes before the forward of block 1"},
           {forward + "0OFFLOAD0@2,0FETCH0@2,0B0,0STEP", "of stage 0 those are the first 2"},
           {forward + "0OFFLOAD0,0FETCH0,0B0,0STEP", "names no block"},
           {forward + "0OFFLOAD0@0,0B0,0STEP", "0FETCH0@0 must come before it"},
           {forward + "0OFFLOAD0@0,0B0@2,0B0@1,0FETCH0@0,0B0@0,0STEP", "0B0@1 (rank 0, action 6): it reads"},
           {forward + "0OFFLOAD0@0,0I0@2,0I0@1,0I0@0,0FETCH0@0,0W0,0STEP",
            "0I0@1 (rank 0, action 6): it reads"},
           {forward + "0FETCH0@0,0B0,0STEP", "fetches activations that are not off-loaded"},
           {forward + "0OFFLOAD0@0,0FETCH0@0,0FETCH0@0,0B0,0STEP",
            "fetches activations that are not off-loaded"},
           {forward + "0OFFLOAD0@0,0FETCH0@0,0OFFLOAD0@0,0B0,0STEP",
            "off-loads its block and micro-batch a second time"},
           {forward + "0B0@2,0B0@1,0OFFLOAD0@0,0FETCH0@0,0B0@0,0STEP", "comes after the backward of block 1"},
           {"0F0@0,0F0@2,0F0@1,0B0,0STEP", "0F0@2 (rank 0, action 2): it repeats or skips a forward"},
           {"0F0@0,0F0@1,0B0,0STEP", "0B0 (rank 0, action 3): it comes before the forward"},
           {"0F0@0,0F0,0B0,0STEP", "0F0 (rank 0, action 2): it repeats or skips a forward"}}) {
    const std::string error = offload_error(plan);
    EXPECT_NE(error.find(why), std::string::npos) << plan << "\n gives: " << error;
  }
}

TEST(OffloadCheck, NamesTheOptionThatIsMissing) {
  const std::string error = offload_error("0F0@0,0F0@1,0F0@2,0OFFLOAD0@0,0FETCH0@0,0B0,0STEP", {});
  EXPECT_NE(error.find("it moves activations, which needs --cpu-offloading-num-layers"), std::string::npos)
      << error;
}

// Three blocks, a second each way; the first leaves. 30 bytes are kept, 10 by each block.
TEST(OffloadSimulation, MovesBesideComputationAndFreesMemory) {
  const auto run = [](int offloaded, double rate) {
    const Complete made = offloading(Schedule::OneFOneB, 1, 1, 1, 3, offloaded);
    CostModel cost;
    cost.stages = {{.f = 3, .i = 3, .w = 3, .kept_bytes = 30}};
    cost.offload_bytes_per_second = rate;
    return simulate(made.plan, made.shape, cost);
  };
  EXPECT_EQ(run(0, 1).makespan, 9);
  // A second each: it leaves while block 2 goes forward, and is back when its backward has ended.
  EXPECT_EQ(run(1, 10).makespan, 9);
  EXPECT_EQ(run(1, 10).ranks[0].fetch_wait, 0);
  EXPECT_EQ(run(1, 10).ranks[0].offloaded_bytes, 10U);
  EXPECT_EQ(run(1, 10).ranks[0].fetched_bytes, 10U);
  // Ten seconds each: it has left after 12 and is back after 22; its own backward and that of block 1 follow.
  EXPECT_EQ(run(1, 1).makespan, 26);
  EXPECT_EQ(run(1, 1).ranks[0].fetch_wait, 17);
  EXPECT_EQ(run(0, 1).ranks[0].peak_bytes, 30U);
  // The third block is computed while the first is away; from its FETCH on all are there.
  EXPECT_EQ(run(1, 10).ranks[0].peak_bytes, 30U);
}

double begin_of(const Simulation& simulation, const Action& action) {
  for (const TimelineEntry& entry : simulation.timeline)
    if (entry.action == action) return entry.begin;
  return -1;
}

// Four blocks, a second forward and two back each; a move takes five.
TEST(OffloadSimulation, WaitsUntilTheBlockBeforeHasLeft) {
  const PlanShape shape{.stages = 1, .micros = 1, .blocks = {4}, .offloaded = {3}};
  CostModel cost;
  cost.stages = {{.f = 4, .i = 4, .w = 4, .kept_bytes = 40}};
  cost.offload_bytes_per_second = 2;
  const Simulation two = simulate(
      parse_plan(
          "0F0@0,0F0@1,0OFFLOAD0@0,0F0@2,0OFFLOAD0@1,0F0@3,0FETCH0@1,0B0@3,0FETCH0@0,0B0@2,0B0@1,0B0@0,0STEP"),
      shape, cost);
  // The first leaves from 2 to 7, the second from 7 to 12; they are back at 17 and 22.
  EXPECT_EQ(begin_of(two, {ActionKind::F, 0, 2, 0}), 2);
  EXPECT_EQ(begin_of(two, {ActionKind::F, 0, 3, 0}), 7);
  EXPECT_EQ(begin_of(two, {ActionKind::B, 0, 2, 0}), 17);
  EXPECT_EQ(begin_of(two, {ActionKind::B, 0, 1, 0}), 22);
  EXPECT_EQ(two.ranks[0].fetch_wait, 4 + 7 + 3);
  // A FETCH between them has waited already, and computation goes on.
  const Simulation apart = simulate(
      parse_plan(
          "0F0@0,0F0@1,0OFFLOAD0@0,0F0@2,0FETCH0@0,0OFFLOAD0@1,0F0@3,0FETCH0@1,0B0@3,0B0@2,0B0@1,0B0@0,0STEP"),
      shape, cost);
  EXPECT_EQ(begin_of(apart, {ActionKind::F, 0, 3, 0}), 3);
}

// Two blocks, of which the first is away from 2 to 22.
TEST(OffloadSimulation, PairsWaitForTheFetchesOfBoth) {
  const PlanShape shape{.stages = 1, .micros = 2, .blocks = {2}, .offloaded = {1}};
  CostModel cost;
  cost.stages = {{.f = 2, .i = 1, .w = 1, .kept_bytes = 20}};
  cost.offload_bytes_per_second = 1;
  const Simulation pair =
      simulate(parse_plan("0F0@0,0F0@1,0OFFLOAD0@0,0FETCH0@0,(0F1;0B0)OVERLAP_F_B,0B1,0STEP"), shape, cost);
  EXPECT_EQ(begin_of(pair, {ActionKind::B, 0, Action::kAll, 0}), 24);
  EXPECT_EQ(pair.ranks[0].fetch_wait, 20);
}

// Many micro-batches in flight: those of the first rank wait out of memory.
TEST(OffloadSimulation, KeepsFewerMicroBatchesInMemory) {
  const auto peak = [](int offloaded) {
    const Complete made = offloading(Schedule::Gpipe, 2, 1, 8, 4, offloaded);
    CostModel cost;
    cost.stages = {{.kept_bytes = 400}, {.kept_bytes = 400}};
    return simulate(made.plan, made.shape, cost).ranks[0].peak_bytes;
  };
  EXPECT_EQ(peak(0), 8 * 400U);
  EXPECT_EQ(peak(1), 8 * 300 + 100U);
  // Block 2 of the next one comes back before the last backward of the first.
  EXPECT_EQ(peak(3), 8 * 100 + 400U);
}

}  // namespace
}  // namespace trifold
