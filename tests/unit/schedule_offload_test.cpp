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

std::string offload_error(const std::string& plan) {
  const PlanShape shape{.stages = 1, .micros = 1, .blocks = {3}, .offloaded = {2}};
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
           {forward + "0FETCH0@0,0B0,0STEP", "fetches what is not off-loaded"},
           {forward + "0OFFLOAD0@0,0FETCH0@0,0FETCH0@0,0B0,0STEP", "fetches what is not off-loaded"},
           {forward + "0OFFLOAD0@0,0FETCH0@0,0OFFLOAD0@0,0B0,0STEP", "is a second one"},
           {forward + "0B0@2,0B0@1,0OFFLOAD0@0,0FETCH0@0,0B0@0,0STEP", "comes after the backward of block 1"},
           {"0F0@0,0F0@2,0F0@1,0B0,0STEP", "0F0@2 (rank 0, action 2): it repeats or skips a forward"},
           {"0F0@0,0F0@1,0B0,0STEP", "0B0 (rank 0, action 3): it comes before the forward"},
           {"0F0@0,0F0,0B0,0STEP", "0F0 (rank 0, action 2): it repeats or skips a forward"}}) {
    const std::string error = offload_error(plan);
    EXPECT_NE(error.find(why), std::string::npos) << plan << "\n gives: " << error;
  }
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
