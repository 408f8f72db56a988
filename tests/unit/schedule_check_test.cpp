#include "schedule/check.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "unit/schedule_testing.h"

namespace trifold::check_test {
namespace {

std::string error_of(const Plan& plan, const PlanShape& shape) {
  try {
    check_plan(plan, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

struct Wrong {
  const char* plan;
  const char* why;  // part of the message
};

void expect_errors(const std::vector<Wrong>& wrongs, const PlanShape& shape) {
  for (const Wrong& wrong : wrongs) {
    const std::string error = error_of(parse_plan(wrong.plan), shape);
    EXPECT_NE(error.find(wrong.why), std::string::npos) << wrong.plan << "\n gives: " << error;
  }
}

TEST(Check, OneStageInAnyOrderThatWorks) {
  const PlanShape shape{.stages = 1, .micros = 2, .blocks = {3}};
  for (const char* plan :
       {"0F0,0F1,0I0,0I1,0W1,0W0,0REDUCE_GRAD,0STEP", "0F0,0B0,0F1,0B1,0STEP",
        "0F1,0B1@2,0F0,0B1@1,0B1@0,0B0@2,0REDUCE_GRAD@2,0B0@1,0B0@0,0REDUCE_GRAD@0,0STEP",
        "0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0I0@2,0I0@1,0W0@2,0I0@0,0W0@1,0W0@0,0B1,0RESHARD,0STEP"})
    EXPECT_EQ(error_of(parse_plan(plan), shape), "no error") << plan;
}

TEST(Check, OneStageNamesTheActionThatIsWrong) {
  expect_errors(
      {{"0B0,0F0,0F1,0B1,0STEP", "0B0 (rank 0, action 1): it comes before the forward"},
       {"0F0,0F0,0B0,0STEP", "0F0 (rank 0, action 2): it is a second forward"},
       {"0F0,0B0,0B0,0STEP", "0B0 (rank 0, action 3): it repeats or skips"},
       {"0F0,0B0,0F2,0B2,0STEP", "0F2 (rank 0, action 3): it names a micro-batch that does not exist"},
       {"0F0,0F1,0B0,0B1@1,0B1@0,0STEP", "0B1@1 (rank 0, action 4): it repeats or skips"},
       {"0F0,0F1,0B0,0B1@3,0STEP", "0B1@3 (rank 0, action 4): it names a block that does not exist"},
       {"0F0,0F1,0B0,0B1@2,0REDUCE_GRAD@1,0STEP", "0REDUCE_GRAD@1 (rank 0, action 5): it comes before"},
       {"0F0,0F1,0B0,0STEP", "0STEP (rank 0, action 4): it comes before the last gradient: 1 of 2"},
       {"0F0,0F1,0B0,0B1,0REDUCE_GRAD,0STEP,0REDUCE_GRAD",
        "0REDUCE_GRAD (rank 0, action 7): it comes after the last"},
       {"0F0,0F1,0W0,0I0,0B1,0STEP", "0W0 (rank 0, action 3): it comes before its I"},
       {"0F0,0F1,0B0,0B1,0REDUCE_GRAD,0REDUCE_GRAD,0STEP", "action 6): it is a second reduction"},
       {"0F0,0F1,0B0,0B1", "rank 0 never reaches 0STEP"},
       {"0F0,0B0,0STEP", "0STEP (rank 0, action 3): it comes before the last gradient: 1 of 2"},
       {"0F0,0F1,0B0,0I1,0STEP", "0STEP"},
       {"0F0,0F1v1,0B0,0B1v1,0STEP", "0F1v1 (rank 0, action 2): it uses weights that are not made yet"},
       {"0F0,0B0v1,0F1,0B1,0STEP", "0B0v1 (rank 0, action 2): it uses weight version 1, its forward used 0"},
       {"0F0,0SEND_F0,0B0", "0SEND_F0 (rank 0, action 2): it has no stage at the other end"},
       {"0F0,0RECV_F0,0B0", "0RECV_F0 (rank 0, action 2): it has no stage at the other end"},
       {"0UNSHARD,0UNSHARD", "0UNSHARD (rank 0, action 2): it finds its weights gathered already"},
       {"0RESHARD",
        "0RESHARD (rank 0, action 1): it finds its weights not gathered, so there is nothing to release"},
       {"0F0,0B0,0REDUCE_TIED", "no weight is shared"},
       {"0F0,0F1,0B0,0B1,0STEP,0STEP", "0STEP (rank 0, action 6): it has no gradient since the Step before"},
       {"1F0,1B0", "it has a stage 1 but no rank runs stage 0"},
       {"0F0,1F0,1B0,0B0", "the plan has 2 stages, the model is cut into 1"},
       {"0F0,0F1,0B0,0B1,0STEP,0F0", "0F0 (rank 0, action 6): it comes after the last Step"}},
      {.stages = 1, .micros = 2, .blocks = {3}});
  Plan pair = parse_plan("0F0,0F1,0B0,0B1,0STEP");
  pair[0][0].overlaps_next = true;
  EXPECT_NE(error_of(pair, {.stages = 1, .micros = 2}).find("takes one forward and one backward"),
            std::string::npos);
}

TEST(Check, EveryGradientMustBeReduced) {
  expect_errors({{"0F0,0B0,0STEP",
                  "0STEP (rank 0, action 3): it comes before the reduction "
                  "of the bucket that ends at block 1"},
                 {"0F0,0B0,0REDUCE_GRAD@0,0STEP", "bucket that ends at block 1"},
                 {"0F0,0B0,0REDUCE_GRAD@1,0STEP", "it comes before the reduction of block 0"},
                 {"0F0,0B0,0REDUCE_GRAD@2,0STEP", "is at block 2, where no bucket ends"},
                 {"0F0,0B0,0REDUCE_GRAD@1,0REDUCE_GRAD@0,0STEP", "no error"},
                 {"0F0,0B0,0REDUCE_GRAD,0STEP", "it names no block, but its stage has 2 buckets"}},
                {.stages = 1, .micros = 1, .blocks = {3}, .bucket_ends = {{1, 0}}});
}

// Bucket 1 after each of two micro-batches, bucket 0 after both.
TEST(Check, EveryMicroBatchHasItsReduction) {
  expect_errors(
      {{"0F0,0B0,0REDUCE_GRAD0@1,0F1,0B1,0REDUCE_GRAD1@1,0REDUCE_GRAD@0,0STEP", "no error"},
       {"0F0,0B0,0F1,0B1,0REDUCE_GRAD1@1,0REDUCE_GRAD0@1,0REDUCE_GRAD@0,0STEP", "no error"},
       {"0F0,0B0,0F1,0B1,0REDUCE_GRAD1@1,0REDUCE_GRAD@0,0STEP",
        "comes after 1 reductions of the bucket that ends at block 1, which takes one for each of 2"},
       {"0F0,0B0,0REDUCE_GRAD0@1,0F1,0REDUCE_GRAD1@1,0B1,0REDUCE_GRAD@0,0STEP",
        "0REDUCE_GRAD1@1 (rank 0, action 5): it comes before the gradient of its block for its micro-batch"},
       {"0F0,0B0,0REDUCE_GRAD0@1,0F1,0B1,0REDUCE_GRAD0@1,0REDUCE_GRAD@0,0STEP",
        "is a second reduction of its micro-batch"},
       {"0F0,0B0,0REDUCE_GRAD@1,0F1,0B1,0REDUCE_GRAD@0,0STEP", "names a micro-batch that does not exist"},
       {"0F0,0B0,0REDUCE_GRAD2@1,0F1,0B1,0STEP", "names a micro-batch that does not exist; there are 2"},
       {"0F0,0B0,0REDUCE_GRAD0@1,0REDUCE_GRAD0@0,0F1,0B1,0STEP",
        "must not name a micro-batch: its bucket is reduced once, after all of them"}},
      {.stages = 1, .micros = 2, .blocks = {2}, .bucket_ends = {{1, 0}}, .each = {{1}}});
}

TEST(Check, TwoRanksNeedTheirMessages) {
  const PlanShape shape{.stages = 2, .micros = 1};
  const std::string good = "0F0,0SEND_F0,0RECV_B0,0B0,0STEP\n1RECV_F0,1F0,1B0,1SEND_B0,1STEP";
  EXPECT_EQ(error_of(parse_plan(good), shape), "no error");
  const std::string first = "0F0,0SEND_F0,0RECV_B0,0B0,0STEP\n";
  const std::string last = "1RECV_F0,1F0,1B0,1SEND_B0,1STEP";
  expect_errors({{(first + "1F0,1RECV_F0,1B0,1SEND_B0,1STEP").c_str(),
                  "1F0 (rank 1, action 1): it comes before the receive of"},
                 {("0F0,0SEND_F0,0B0,0RECV_B0,0STEP\n" + last).c_str(),
                  "0B0 (rank 0, action 3): it comes before the receive"},
                 {("0SEND_F0,0F0,0RECV_B0,0B0,0STEP\n" + last).c_str(),
                  "0SEND_F0 (rank 0, action 1): it comes before its data are computed"},
                 {("0F0,0RECV_B0,0B0,0STEP\n" + last).c_str(), "rank 0 never reaches 0SEND_F0"},
                 {(first + "1RECV_F0,1F0,1B0,1STEP").c_str(), "rank 1 never reaches 1SEND_B0"},
                 {(first + "1RECV_F0,1F0,1B0,1SEND_B0,1SEND_B0,1STEP").c_str(),
                  "1SEND_B0 (rank 1, action 5): it repeats a"},
                 {(first + "1RECV_F0,1F0,1SEND_B0,1B0,1STEP").c_str(),
                  "1SEND_B0 (rank 1, action 3): it comes before its data are computed"},
                 {"0F0,1F0,1B0,0B0,0STEP,1STEP", "no error"},
                 {"0F0,1RECV_F0,1F0,1B0,0B0,0STEP,1STEP", "between stages 1 and 0, which are on one rank"},
                 {"1F0,0F0,1B0,0B0,0STEP,1STEP",
                  "1F0 (rank 0, action 1): it comes before the forward of the stage before"},
                 {"0F0,1F0,0B0,1B0,0STEP,1STEP",
                  "0B0 (rank 0, action 3): it comes before the gradient of the next stage"},
                 {"0F0,1F0\n1B0", "1B0 (rank 1, action 1): stage 1 is on rank 0 too"}},
                shape);
}

// Ranks that both wait for a message before they send their own.
TEST(Check, ADeadlockNamesTheActionEachRankWaitsFor) {
  const Plan plan = parse_plan(
      "0F0,0SEND_F0,0F1,0RECV_B0,0B0,0SEND_F1,0RECV_B1,0B1,0STEP\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1STEP");
  EXPECT_EQ(error_of(plan, {.stages = 2, .micros = 2}),
            "the plan deadlocks:\n"
            "  0RECV_B0 (rank 0, action 4) waits for 1SEND_B0 of rank 1\n"
            "  1RECV_F1 (rank 1, action 3) waits for 0SEND_F1 of rank 0");
}

TEST(Check, MessagesArriveInTheOrderTheyAreSent) {
  EXPECT_NE(error_of(parse_plan("0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1,0STEP\n"
                                "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1STEP"),
                     {.stages = 2, .micros = 2})
                .find("1RECV_F1 (rank 1, action 1): the next message from rank 0 to rank 1 is 0SEND_F0"),
            std::string::npos);
}

TEST(Check, TheTiedReductionMeetsOnBothRanks) {
  const PlanShape shape{.stages = 2, .micros = 1, .tied = {{1, 0}}};
  const std::string first = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_TIED,0REDUCE_GRAD,0STEP\n";
  EXPECT_EQ(error_of(parse_plan(first + "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_TIED,1STEP"), shape), "no error");
  const std::string deadlock =
      error_of(parse_plan(first + "1RECV_F0,1F0,1B0,1REDUCE_TIED,1SEND_B0,1STEP"), shape);
  EXPECT_NE(deadlock.find("1REDUCE_TIED (rank 1, action 4) waits for those of other ranks"),
            std::string::npos)
      << deadlock;
  EXPECT_NE(error_of(parse_plan(first + "1RECV_F0,1F0,1B0,1SEND_B0,1STEP"), shape)
                .find("1STEP (rank 1, action 5): it comes before the REDUCE_TIED"),
            std::string::npos);
  EXPECT_NE(error_of(parse_plan("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0REDUCE_TIED,0STEP\n"
                                "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_TIED,1STEP"),
                     shape)
                .find("0REDUCE_GRAD (rank 0, action 5): it comes before the REDUCE_TIED"),
            std::string::npos);
  // On one rank the head's gradient is added when the bucket is reduced: it must be there.
  expect_errors(
      {{"0F0,1F0,1I0,0B0,0REDUCE_GRAD,1W0,0STEP,1STEP", "comes before the last gradient of stage 1, which"},
       {"0F0,1F0,1I0,0B0,1W0,0REDUCE_GRAD,0STEP,1STEP", "no error"}},
      shape);
}

TEST(Check, StepsOfAWindowHoldTheSameMicroBatchesOnEveryStage) {
  const PlanShape shape{.stages = 2, .micros = 2};
  const std::string first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0STEP,0RECV_B1,0B1,0STEP\n";
  EXPECT_EQ(
      error_of(parse_plan(first + "1RECV_F0,1F0,1B0,1SEND_B0,1STEP,1RECV_F1,1F1v1,1B1v1,1SEND_B1,1STEP"),
               shape),
      "no error");
  expect_errors({{(first + "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1STEP").c_str(),
                  "micro-batch 1 is in Step 2 of stage 0, but in Step 1 of stage 1"},
                 {(first + "1RECV_F0,1F0,1B0,1SEND_B0,1STEP,1RECV_F1,1F1v1,1B1v1,1SEND_B1").c_str(),
                  "1STEP (rank 1, action 5): it comes before the last gradient"},
                 {(first + "1RECV_F0,1F0,1B0,1SEND_B0,1STEP,1RECV_F1,1F1v2,1B1v2,1SEND_B1,1STEP").c_str(),
                  "not made yet"}},
                shape);
}

TEST(Check, EvaluationGoesForwardOnly) {
  PlanShape shape{.stages = 4, .micros = 3, .forward_only = true};
  EXPECT_EQ(error_of(add_communication(forward_only(Schedule::ZbV, 2, 2, 3)), shape), "no error");
  EXPECT_EQ(error_of(add_communication(forward_only(Schedule::Interleaved, 2, 2, 3)), shape), "no error");
  shape.stages = 1;
  expect_errors({{"0F0,0F1,0F2,0B0", "0B0 (rank 0, action 4): it is not allowed in a forward-only plan"},
                 {"0F0,0F1,0F2,0STEP", "0STEP (rank 0, action 4): it is not allowed"},
                 {"0F0,0F1", "rank 0 never reaches 0F2"}},
                shape);
}

// Every generator, with its passes, for many sizes: complete and free of deadlock.
TEST(Check, AllSchedulesPass) {
  for (std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    for (int ranks : {1, 2, 3, 4, 7, 16})
      for (int chunks : {1, 2, 3, 5})
        for (int micros : {1, 2, 3, 4, 7, 8, 11, 16, 33}) {
          if (!schedule_problem(schedule, ranks, chunks, micros).empty()) continue;
          // The search for an order takes longer the more there is to order.
          if (schedule == Schedule::Auto && ranks * chunks * micros > 200) continue;
          const bool async = is_async(schedule);
          const Plan compute =
              async ? make_async(schedule, ranks, micros, 3) : make_schedule(schedule, ranks, chunks, micros);
          for (bool tied : {false, true}) {
            const auto [plan, shape] = test::complete(compute, async ? 3 * micros : micros,
                                                      tied && ranks * chunks > 1, 1 + micros % 3);
            ASSERT_EQ(error_of(plan, shape), "no error")
                << name << " p " << ranks << " v " << chunks << " m " << micros << " tied " << tied;
            ASSERT_EQ(parse_plan(to_string(plan)), plan);
          }
        }
  }
}

// PyTorch's own lowering of a schedule, completed by Steps, can run; so can its published tables.
TEST(Check, PlansOfPyTorchRun) {
  const std::vector<int> blocks{1, 1, 1, 1};
  const std::vector<std::vector<int>> ends(4, {0});
  for (const char* name : {"zb1p_2rank_2stagep_comms.csv", "zb1p_2rank_2stagep_compute.csv"}) {
    const Plan plan = add_communication(add_reduce(parse_plan(test::golden_text(name)), blocks, ends));
    EXPECT_EQ(error_of(plan, {.stages = 4, .micros = 8}), "no error") << name;
  }
  const auto [plan, shape] = test::complete(parse_plan(test::golden_text("dualpipev_4rank_10mb.csv")), 10);
  EXPECT_EQ(error_of(plan, shape), "no error");
}

}  // namespace
}  // namespace trifold::check_test
