#include "schedule/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "schedule/batches.h"
#include "schedule/check.h"
#include "schedule/placement.h"
#include "schedule/schedules.h"
#include "schedule/simulate.h"
#include "unit/schedule_testing.h"

namespace trifold::passes_test {
namespace {

using Ends = std::vector<std::vector<int>>;

std::string error_of(const std::string& plan) {
  try {
    add_communication(parse_plan(plan));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Passes, ReductionsTakeTheLastGradientOfEachStageApart) {
  const std::vector<int> blocks{2, 3};
  const Ends ends{{0}, {2, 0}};
  EXPECT_EQ(to_string(add_reduce(make_schedule(Schedule::OneFOneB, 2, 1, 2), blocks, ends)),
            "0F0,0F1,0B0,0B1@1,0B1@0,0REDUCE_GRAD@0,0STEP\n"
            "1F0,1B0,1F1,1B1@2,1REDUCE_GRAD@2,1B1@1,1B1@0,1REDUCE_GRAD@0,1STEP\n");
  // W is what completes a gradient when backward is taken apart.
  EXPECT_EQ(to_string(add_reduce(parse_plan("0F0,0I0,0W0"), blocks, ends)),
            "0F0,0I0,0W0@1,0W0@0,0REDUCE_GRAD@0,0STEP\n");
}

TEST(Passes, StepsWaitForEveryReductionOfTheRank) {
  const std::vector<int> blocks{1, 1, 1, 1};
  const Ends ends{{0}, {0}, {0}, {0}};
  EXPECT_EQ(to_string(add_reduce(make_schedule(Schedule::Interleaved, 2, 2, 1), blocks, ends)),
            "0F0,2F0,2B0@0,2REDUCE_GRAD@0,0B0@0,0REDUCE_GRAD@0,0STEP,2STEP\n"
            "1F0,3F0,3B0@0,3REDUCE_GRAD@0,1B0@0,1REDUCE_GRAD@0,1STEP,3STEP\n");
}

// The last rank waits at its end: what the first needs of it is done by then.
TEST(Passes, TheTiedGradientIsAddedBeforeItsBucketIsReduced) {
  const std::vector<int> blocks{2, 1};
  const Ends ends{{1, 0}, {0}};
  EXPECT_EQ(to_string(add_reduce(make_schedule(Schedule::Gpipe, 2, 1, 1), blocks, ends, {{1, 0}})),
            "0F0,0B0@1,0REDUCE_GRAD@1,0B0@0,0REDUCE_TIED,0REDUCE_GRAD@0,0STEP\n"
            "1F0,1B0@0,1REDUCE_GRAD@0,1REDUCE_TIED,1STEP\n");
  // On one rank there is nothing to send.
  EXPECT_EQ(
      to_string(add_reduce(parse_plan("0F0,1F0,1B0,0B0"), std::vector<int>{1, 1}, Ends{{0}, {0}}, {{1, 0}})),
      "0F0,1F0,1B0@0,1REDUCE_GRAD@0,0B0@0,0REDUCE_GRAD@0,0STEP,1STEP\n");
}

// Parts of the head on several ranks, which share their rows of the embedding: all meet the first stage's rank at once,
// each with all of its stages.
TEST(Passes, TiedStagesMeetOnceOnEachRank) {
  const std::vector<int> blocks{1, 1, 1, 1, 2};
  const Ends ends{{0}, {0}, {0}, {0}, {1, 0}};
  const std::vector<TiedStage> tied{{1, 0}, {2, 0}, {3, 0}, {4, 1}};
  const Plan plan =
      add_reduce(parse_plan("0F0,3F0,3I0,0B0,3W0\n1F0,4F0,4B0,1B0\n2F0,2B0"), blocks, ends, tied);
  EXPECT_EQ(
      to_string(plan),
      "0F0,3F0,3I0,0B0@0,3W0@0,3REDUCE_GRAD@0,0REDUCE_TIED,0REDUCE_GRAD@0,0STEP,3STEP\n"
      "1F0,4F0,4B0@1,4REDUCE_GRAD@1,4B0@0,4REDUCE_GRAD@0,1B0@0,1REDUCE_GRAD@0,4REDUCE_TIED,1STEP,4STEP\n"
      "2F0,2B0@0,2REDUCE_GRAD@0,2REDUCE_TIED,2STEP\n");
  const PlanShape shape{.stages = 5, .micros = 1, .blocks = blocks, .tied = tied, .bucket_ends = ends};
  EXPECT_NO_THROW(check_plan(add_communication(plan), shape));
  const PlanShape with_another{
      .stages = 5, .micros = 1, .blocks = blocks, .tied = {{2, 0}}, .bucket_ends = ends};
  EXPECT_THROW(check_plan(add_communication(plan), with_another), Error);
}

// Ranks 1 and 2 have parts of the table. Lookups come early, their gradients after all that others wait for; the last
// backward of the stage that follows is split, because others wait for its first half.
TEST(Passes, LookupsAreStagesBeforeTheOthers) {
  PlanShape shape{
      .stages = 5, .micros = 1, .blocks = {1, 1, 2, 1, 1}, .tied = {{3, 0, 0}, {4, 0, 1}}, .lookups = {1, 2}};
  shape.bucket_ends.assign(5, {0});
  const Plan plan = add_lookups(parse_plan("0F0,0B0\n1F0,1I0,1W0\n2F0,2I0,2W0"), shape);
  EXPECT_EQ(to_string(plan), "2F0,2I0,2W0\n0F0,3F0,3I0,3W0,0B0\n1F0,4F0,4I0,4W0,1B0\n");
  const Plan whole =
      add_communication(add_reduce(plan, shape.blocks, shape.bucket_ends, shape.tied), Pairs::Apart, 2);
  EXPECT_NO_THROW(check_plan(whole, shape));
  EXPECT_EQ(to_string(whole),
            "2RECV_F0,2F0,2SEND_F0,2RECV_B0,2I0,2SEND_B0,2W0@1,2W0@0,2REDUCE_GRAD@0,2STEP\n"
            "0F0,0SEND_F0,3RECV_F0,3F0,3SEND_F0,3RECV_B0,3I0,3SEND_B0,3W0@0,3REDUCE_GRAD@0,0RECV_B0,0B0@0,"
            "0REDUCE_GRAD@0,0STEP,3STEP\n"
            "1RECV_F0,1F0,1SEND_F0,4RECV_F0,4F0,4I0,4SEND_B0,4W0@0,4REDUCE_GRAD@0,1RECV_B0,1B0@0,1SEND_B0,"
            "1REDUCE_GRAD@0,1STEP,4STEP\n");
  // The sum of both uses' gradients waits for both.
  shape.tied = {{3, 0, 1}, {4, 0, 1}};
  EXPECT_THROW(add_reduce(plan, shape.blocks, shape.bucket_ends, shape.tied), Error);
}

// Every schedule, also where the backward of a lookup could come before the weight gradients of its rank.
TEST(Passes, LookupsRunWithEverySchedule) {
  for (const std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    if (is_async(schedule) || schedule == Schedule::Auto) continue;
    for (const int chunks : {1, 2})
      for (const int micros : {1, 4, 12}) {
        if (!schedule_problem(schedule, 4, chunks, micros).empty()) continue;
        const Plan compute = make_schedule(schedule, 4, chunks, micros);
        for (const std::vector<int>& lookups : {std::vector<int>{3}, {2, 3}, {1, 3, 2}}) {
          const int count = static_cast<int>(lookups.size());
          PlanShape shape{.stages = 4 * chunks + count, .micros = micros, .lookups = lookups};
          const auto stages = static_cast<size_t>(shape.stages);
          shape.blocks.assign(stages, 1);
          shape.bucket_ends.assign(stages, {0});
          const std::vector<int> rank_of = stage_ranks(compute);
          for (int stage = 1; stage < 4 * chunks; ++stage)
            for (int lookup = 0; lookup < count; ++lookup)
              if (rank_of[static_cast<size_t>(stage)] == lookups[static_cast<size_t>(lookup)])
                shape.tied.push_back({stage + count, 0, lookup});
          const Plan plan = add_communication(
              add_reduce(add_lookups(compute, shape), shape.blocks, shape.bucket_ends, shape.tied),
              Pairs::Apart, count);
          EXPECT_NO_THROW(check_plan(plan, shape)) << name << " chunks " << chunks << " micros " << micros;
        }
      }
  }
}

TEST(Passes, AsynchronousStepsGetTheirReductions) {
  const std::vector<int> blocks{2};
  const Ends ends{{1, 0}};
  EXPECT_EQ(to_string(add_reduce(make_async(Schedule::PipeDream, 1, 1, 2), blocks, ends)),
            "0F0,0B0@1,0REDUCE_GRAD@1,0B0@0,0REDUCE_GRAD@0,0STEP,"
            "0F1v1,0B1@1v1,0REDUCE_GRAD@1,0B1@0v1,0REDUCE_GRAD@0,0STEP\n");
  EXPECT_EQ(to_string(add_reduce(make_async(Schedule::PipeDream, 2, 1, 1), std::vector<int>{1, 1},
                                 Ends{{0}, {0}}, {{1, 0}})),
            "0F0,0B0@0,0REDUCE_TIED,0REDUCE_GRAD@0,0STEP\n1F0,1B0@0,1REDUCE_GRAD@0,1REDUCE_TIED,1STEP\n");
}

TEST(Passes, AStageThatReducesAlreadyKeepsItsReductions) {
  const Ends ends{{1, 0}};
  for (const char* plan : {"0F0,0B0,0REDUCE_GRAD", "0F0,0B0,0REDUCE_GRAD,0STEP"})
    EXPECT_EQ(to_string(add_reduce(parse_plan(plan), std::vector<int>{2}, ends)),
              "0F0,0B0,0REDUCE_GRAD@1,0REDUCE_GRAD@0,0STEP\n");
  const char* named = "0F0,0B0@1,0REDUCE_GRAD@1,0B0@0,0REDUCE_GRAD@0,0STEP\n";
  EXPECT_EQ(to_string(add_reduce(parse_plan(named), std::vector<int>{2}, ends)), named);
}

TEST(Passes, BucketsAreReducedAfterEachMicroBatch) {
  const std::vector<int> blocks{2, 1};
  const Ends ends{{1, 0}, {0}};
  EXPECT_EQ(to_string(add_reduce(make_schedule(Schedule::OneFOneB, 2, 1, 2), blocks, ends, {}, ends)),
            "0F0,0F1,0B0@1,0REDUCE_GRAD0@1,0B0@0,0REDUCE_GRAD0@0,0B1@1,0REDUCE_GRAD1@1,0B1@0,0REDUCE_GRAD1@0,"
            "0STEP\n1F0,1B0@0,1REDUCE_GRAD0@0,1F1,1B1@0,1REDUCE_GRAD1@0,1STEP\n");
  // The bucket of a weight that is tied to another rank's is reduced once.
  EXPECT_EQ(
      to_string(add_reduce(make_schedule(Schedule::Gpipe, 2, 1, 2), blocks, ends, {{1, 0}}, Ends{{1}, {0}})),
      "0F0,0F1,0B0@1,0REDUCE_GRAD0@1,0B0@0,0B1@1,0REDUCE_GRAD1@1,0B1@0,0REDUCE_TIED,0REDUCE_GRAD@0,0STEP\n"
      "1F0,1F1,1B0@0,1REDUCE_GRAD0@0,1B1@0,1REDUCE_GRAD1@0,1REDUCE_TIED,1STEP\n");
  // On one rank it waits for the other use of its micro-batch.
  EXPECT_EQ(to_string(add_reduce(parse_plan("0F0,1F0,1I0,0I0,0W0,1W0"), std::vector<int>{1, 1},
                                 Ends{{0}, {0}}, {{1, 0}}, Ends{{0}, {0}})),
            "0F0,1F0,1I0,0I0,0W0@0,1W0@0,1REDUCE_GRAD0@0,0REDUCE_GRAD0@0,0STEP,1STEP\n");
}

// One stage of three blocks; the head, block 2, has its weight with the embedding, block 0.
TEST(Passes, GradientsAreThereFromTheFirstToTheirReduction) {
  const auto unit = [](int block) { return WeightUnit{0, block}; };
  const UnitsOfBlocks units{{{unit(0)}, {unit(1)}, {unit(2), unit(0)}}};
  const Ends ends{{2, 1, 0}};
  const std::vector<int> blocks{3};
  const auto with_forward_of = [](int head) {
    return [head](ActionKind kind, StageBlockIndex at) {
      return adds_to_gradients(kind, at.block == head, false);
    };
  };
  constexpr int kNone = -1;
  using Pairs = std::vector<std::pair<WeightUnit, WeightUnit>>;
  const Plan reduced = add_reduce(parse_plan("0F0,0B0,0F1,0B1"), blocks, ends, {}, ends);
  EXPECT_EQ(gradients_together(reduced[0], units, with_forward_of(2)),
            (Pairs{{unit(0), unit(1)}, {unit(0), unit(2)}, {unit(1), unit(2)}}));
  // If the head is elsewhere, block 0 is gathered while block 1 is in use and block 2 is released.
  const UnitsOfBlocks apart{{{unit(0)}, {unit(1)}, {unit(2)}}};
  const Plan once = add_reduce(parse_plan("0F0,0B0"), blocks, ends, {}, ends);
  EXPECT_EQ(gradients_together(once[0], apart, with_forward_of(kNone)),
            (Pairs{{unit(0), unit(1)}, {unit(1), unit(2)}}));
  // A loss that adds in forward has its gradients while those of block 0 are still being summed.
  const Plan twice = add_reduce(parse_plan("0F0,0F1,0B0,0B1"), blocks, ends, {}, ends);
  EXPECT_EQ(gradients_together(twice[0], apart, with_forward_of(kNone)).size(), 3U);
}

TEST(Passes, AnOverlappedPairComesApartWhereItIsSplit) {
  EXPECT_EQ(to_string(add_reduce(parse_plan("0F0,(0F1;0B0)OVERLAP_F_B,0B1"), std::vector<int>{1}, Ends{{0}})),
            "0F0,(0F1;0B0)OVERLAP_F_B,0B1@0,0REDUCE_GRAD@0,0STEP\n");
  EXPECT_EQ(to_string(add_reduce(parse_plan("0F0,(0F1;0B0)OVERLAP_F_B,0W1"), std::vector<int>{2}, Ends{{0}})),
            "0F0,(0F1;0B0)OVERLAP_F_B,0W1@1,0W1@0,0REDUCE_GRAD@0,0STEP\n");
  EXPECT_EQ(to_string(add_reduce(parse_plan("0F0,0B0,(0F1;0B1)OVERLAP_F_B"), std::vector<int>{1}, Ends{{0}})),
            "0F0,0B0,0F1,0B1@0,0REDUCE_GRAD@0,0STEP\n");
}

// 1F1B on two ranks. A receive stands before the computation under which its message arrives: that of micro-batch 1
// before the forward of 0, during which it is sent.
TEST(Passes, MessagesStandWhereTheyCannotBlock) {
  EXPECT_EQ(to_string(add_communication(make_schedule(Schedule::OneFOneB, 2, 1, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(Passes, ABatchHasOneDirectionAndOneReceive) {
  const RankPlan row = parse_plan("0F0,1SEND_F0,0SEND_F0,1RECV_F0,1RECV_F1,0RECV_B0,0SEND_F1,0B0")[0];
  std::vector<size_t> ends;
  for (size_t at = 1; at < 7; at = ends.back()) ends.push_back(batch_end(row, at));
  EXPECT_EQ(ends, (std::vector<size_t>{4, 5, 6, 7}));
}

// Stages 1 and 2 are on one rank: nothing is sent between them.
TEST(Passes, NothingIsSentWithinARank) {
  EXPECT_EQ(to_string(add_communication(forward_only(Schedule::ZbV, 2, 2, 1))),
            "0F0,0SEND_F0,3RECV_F0,3F0\n1RECV_F0,1F0,2F0,2SEND_F0\n");
}

TEST(Passes, AGradientGoesOutWithTheFirstBlock) {
  Plan plan =
      add_reduce(make_schedule(Schedule::Gpipe, 2, 1, 1), std::vector<int>{2, 2}, Ends{{1, 0}, {1, 0}});
  EXPECT_EQ(to_string(add_communication(std::move(plan))),
            "0F0,0SEND_F0,0RECV_B0,0B0@1,0REDUCE_GRAD@1,0B0@0,0REDUCE_GRAD@0,0STEP\n"
            "1RECV_F0,1F0,1B0@1,1REDUCE_GRAD@1,1B0@0,1SEND_B0,1REDUCE_GRAD@0,1STEP\n");
}

// Apart, the output leaves before the backward; together, it leaves when both are done.
TEST(Passes, OverlappedPairsComeApartUnlessTheyAreToStay) {
  const char* plan = "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n";
  EXPECT_EQ(to_string(add_communication(parse_plan(plan))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
            "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(to_string(add_communication(parse_plan(plan), Pairs::Together)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
            "1RECV_F0,1RECV_F1,1F0,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1\n");
}

TEST(Passes, APlanWithMessagesIsLeftAlone) {
  const Plan plan = parse_plan(test::golden_text("zb1p_2rank_2stagep_comms.csv"));
  EXPECT_EQ(add_communication(plan), plan);
}

TEST(Passes, AnOrderThatCannotRunIsNamed) {
  EXPECT_EQ(error_of("0B0,0F0\n1F0,1B0\n"),
            "the plan cannot run in this order; it deadlocks:\n"
            "  0B0 (rank 0, action 1) waits for the gradient of stage 1 for micro-batch 0\n"
            "  1F0 (rank 1, action 1) waits for 0F0");
  EXPECT_NE(error_of("0F0,0B0\n0F1\n").find("0F1 (rank 1, action 1): stage 0 is on rank 0 too"),
            std::string::npos);
  EXPECT_NE(error_of("0F0,0B0,2F0\n").find("no rank runs stage 1"), std::string::npos);
  EXPECT_NE(error_of("0F2000000000\n").find("too few actions"), std::string::npos);
  EXPECT_NE(error_of("2000000000F0\n").find("no pipeline has that many stages"), std::string::npos);
}

TEST(DropBackward, LeavesTheForwardOfStagesThatTrainNothing) {
  const std::vector<int> blocks{1, 1, 1};
  const Ends ends{{}, {0}, {0}};
  Plan plan = drop_backward(make_schedule(Schedule::OneFOneB, 3, 1, 2), 1);
  plan = add_communication(add_reduce(std::move(plan), blocks, ends));
  const std::string text = to_string(plan);
  EXPECT_EQ(text.substr(0, text.find('\n')), "0F0,0SEND_F0,0F1,0SEND_F1,0STEP");
  EXPECT_EQ(text.find("1SEND_B"), std::string::npos) << text;
  EXPECT_NE(text.find("2SEND_B1"), std::string::npos) << text;

  PlanShape shape{.stages = 3, .micros = 2, .blocks = blocks};
  shape.bucket_ends = ends;
  EXPECT_THROW(check_plan(plan, shape), Error);
  shape.without_backward = 1;
  EXPECT_NO_THROW(check_plan(plan, shape));
  shape.without_backward = 2;
  EXPECT_THROW(check_plan(plan, shape), Error);
}

TEST(DropBackward, TakesMessagesAndReductionsOfAPlanWithThem) {
  const Plan plan = parse_plan(
      "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD@0,0STEP\n"
      "1RECV_F0,(1F0;1B0)OVERLAP_F_B,1SEND_B0,1REDUCE_GRAD@0,1STEP");
  EXPECT_EQ(to_string(drop_backward(plan, 1)),
            "0F0,0SEND_F0,0STEP\n1RECV_F0,(1F0;1B0)OVERLAP_F_B,1REDUCE_GRAD@0,1STEP\n");
  EXPECT_EQ(to_string(drop_backward(parse_plan("0F0,(0F1;0B0)OVERLAP_F_B,1F0,1B0,0B1"), 1)),
            "0F0,0F1,1F0,1B0\n");
  EXPECT_EQ(drop_backward(plan, 0), plan);
}

TEST(DropBackward, FreesWhatAStageWouldKeep) {
  CostModel cost;
  cost.stages.resize(2);
  for (StageCost& stage : cost.stages) stage.kept_bytes = 100;
  PlanShape shape{.stages = 2, .micros = 4};
  shape.without_backward = 1;
  const Ends ends{{}, {0}};
  const Plan plan = add_communication(
      add_reduce(drop_backward(make_schedule(Schedule::Gpipe, 2, 1, 4), 1), std::vector<int>{1, 1}, ends));
  const Simulation simulated = simulate(plan, shape, cost);
  EXPECT_EQ(simulated.ranks[0].peak_bytes, 100U);
  EXPECT_EQ(simulated.ranks[1].peak_bytes, 400U);
}

// The most inputs that a rank has received in a row and not read yet.
int most_unread(const RankPlan& row) {
  int unread = 0, most = 0;
  for (const Action& action : row) {
    if (action.kind == ActionKind::RecvF) most = std::max(most, ++unread);
    if (action.kind == ActionKind::F) --unread;
  }
  return most;
}

// A forward takes a third of a forward with its backward: without a limit, a third of the micro-batches would arrive before
// they are read.
TEST(DropBackward, StagesWithoutABackwardStayOneMicroBatchAhead) {
  constexpr int kMicros = 24;
  for (const Schedule schedule : {Schedule::OneFOneB, Schedule::ZbH1}) {
    PlanShape shape{
        .stages = 4, .micros = kMicros, .blocks = {1, 1, 1, 1}, .bucket_ends = {{}, {}, {0}, {0}}};
    shape.without_backward = 2;
    const Plan plan = add_communication(add_reduce(drop_backward(make_schedule(schedule, 4, 1, kMicros), 2),
                                                   shape.blocks, shape.bucket_ends));
    EXPECT_NO_THROW(check_plan(plan, shape));
    for (const RankPlan& row : plan) EXPECT_LE(most_unread(row), 2) << to_string(plan);
    // The two layers of each first stage take nearly as long as a layer and its backward on the others.
    CostModel cost;
    cost.stages.resize(4);
    cost.stages[0].f = cost.stages[1].f = 2.9;
    cost.message_seconds = 0.01;
    EXPECT_LT(simulate(plan, shape, cost).makespan, 3.0 * kMicros + 4 * 2.9 + 1);
  }
}

// The shape of a plan whose first `first` stages, lookups included, have no backward.
PlanShape shape_without(int stages, int micros, int first, std::vector<int> lookups = {}) {
  PlanShape shape{.stages = stages, .micros = micros, .lookups = std::move(lookups)};
  shape.blocks.assign(static_cast<size_t>(stages), 1);
  shape.bucket_ends.assign(static_cast<size_t>(stages), {0});
  for (int stage = 0; stage < first; ++stage) shape.bucket_ends[static_cast<size_t>(stage)].clear();
  shape.without_backward = first;
  return shape;
}

// Ranks that have stages of both kinds, and numbers of micro-batches that are no multiple of the ranks. Messages may be
// ordered as if all stages had a backward, which is no limit but the order of the rows.
TEST(DropBackward, RunsWithEverySchedule) {
  for (const std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    if (is_async(schedule) || schedule == Schedule::Auto) continue;
    for (const int ranks : {4, 8})
      for (const int chunks : {1, 2})
        for (const int micros : {1, 4, 6, 7, 11, 12, 15}) {
          if (!schedule_problem(schedule, ranks, chunks, micros).empty()) continue;
          const Plan compute = make_schedule(schedule, ranks, chunks, micros);
          for (int first = 1; first < ranks * chunks; ++first) {
            SCOPED_TRACE(fmt::format("{}, {} ranks, {} chunks, {} micro-batches, {} stages without", name,
                                     ranks, chunks, micros, first));
            const PlanShape shape = shape_without(ranks * chunks, micros, first);
            const Pairs pairs = schedule == Schedule::DualPipeV ? Pairs::Together : Pairs::Apart;
            const Plan plan = add_communication(
                add_reduce(drop_backward(compute, first), shape.blocks, shape.bucket_ends), pairs);
            ASSERT_NO_THROW(check_plan(plan, shape));
            const Plan other = drop_backward(
                add_communication(
                    add_reduce(compute, shape.blocks,
                               std::vector<std::vector<int>>(static_cast<size_t>(shape.stages), {0})),
                    pairs),
                first);
            CostModel cost;
            cost.stages.resize(static_cast<size_t>(shape.stages));
            cost.message_seconds = 0.01;
            EXPECT_LT(simulate(plan, shape, cost).makespan, simulate(other, shape, cost).makespan + 1);
            for (const RankPlan& row : plan) EXPECT_LE(most_unread(row), chunks == 1 ? 2 : chunks * ranks);
          }
        }
  }
}

TEST(DropBackward, TakesLookupsOfAFrozenEmbedding) {
  const Plan compute = make_schedule(Schedule::ZbH1, 4, 1, 12);
  for (int first = 1; first < 4; ++first) {
    const PlanShape shape = shape_without(6, 12, first + 2, {2, 3});
    const Plan plan = add_communication(
        add_reduce(drop_backward(add_lookups(compute, shape), first + 2), shape.blocks, shape.bucket_ends),
        Pairs::Apart, 2);
    EXPECT_NO_THROW(check_plan(plan, shape)) << first;
    for (const RankPlan& row : plan) EXPECT_LE(most_unread(row), 4) << to_string(plan);
  }
}

}  // namespace
}  // namespace trifold::passes_test
