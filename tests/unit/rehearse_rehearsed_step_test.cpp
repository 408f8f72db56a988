// The simulated step of a whole mesh from made-up measurements whose result is known by hand.
#include "rehearse/rehearsed_step.h"

#include <gtest/gtest.h>

#include "plan/resolve.h"
#include "support/planned_runs.h"

namespace trifold::test {
namespace {

constexpr int kMicros = 16;
constexpr double kStep = 1 + kMicros * (3 + 5) + 2 + 0.5;  // of the measurements below

// A GPT of 8 layers on 2 pipeline ranks, whose messages take no time worth mentioning.
PlanConfig two_stages(int tensor = 1) {
  PretrainConfig run = gpt_of({8, 32, 4, 16, 64}, 2 * tensor);
  run.model.untie_embeddings_and_output_weights = true;
  run.mesh.tensor_model_parallel_size = tensor;
  run.mesh.pipeline_model_parallel_size = 2;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = kMicros;  // most actions are of whole stages
  PlanConfig config = plan_config(run);
  config.link_bandwidth = 1e12;
  config.link_latency = 0;
  config.tensor_link_bandwidth = 1e-3;
  return config;
}

class RehearsedStepTest : public ::testing::Test {
 protected:
  explicit RehearsedStepTest(int tensor = 1) : config_(two_stages(tensor)) {}

  static RehearsedRank rank_with(int rank, int stage, double f, double b, double step) {
    RehearsedRank one;
    one.rank = rank;
    one.pipeline_rank = stage;
    one.actions = {
        {ActionKind::F, stage, 4, f}, {ActionKind::B, stage, 4, b}, {ActionKind::Step, stage, 1, step}};
    return one;
  }

  PlanConfig config_;
  PlannedRun planned_{run_spec(config_.run)};
  PlanReport report_ = make_plan_report(planned_, planned_machine(config_));
};

class RehearsedTensorRanks : public RehearsedStepTest {
 protected:
  RehearsedTensorRanks() : RehearsedStepTest(2) {}
};

// 1F1B: the second stage is busy from the end of the first forward on, (3 + 5) s for each micro-batch; then the first has its last
// backward and its update.
TEST_F(RehearsedStepTest, PutsMeasuredTimesIntoTheWholePlan) {
  const std::vector<RehearsedRank> ranks{rank_with(0, 0, 1, 2, 0.5), rank_with(1, 1, 3, 5, 0.25)};
  const auto step = simulate_rehearsed(planned_, report_, ranks, false);
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->seconds, kStep, 1e-6);
  EXPECT_NEAR(step->tokens_per_second, kMicros * 16 / kStep, 1e-6);
  EXPECT_NEAR(step->mfu, report_.flops / (kStep * 2 * 150e12), 1e-6 * step->mfu);
  EXPECT_EQ(step->sources, (std::vector<StageSource>{{0, 0, false}, {1, 1, false}}));
}

TEST_F(RehearsedStepTest, TheSlowerOfTwoRanksOfAStageCounts) {
  const std::vector<RehearsedRank> ranks{rank_with(0, 0, 1, 2, 0.5), rank_with(1, 1, 1, 2, 0.25),
                                         rank_with(3, 1, 3, 5, 0.25)};
  const auto step = simulate_rehearsed(planned_, report_, ranks, false);
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->seconds, kStep, 1e-6);
  EXPECT_EQ(step->sources[1].rank, 3);
}

// The last stage, with the head, costs what the first measured, scaled by the ratio of their planned times.
TEST_F(RehearsedStepTest, ScalesStagesThatWereNotRehearsed) {
  const std::vector<RehearsedRank> ranks{rank_with(0, 0, 1, 2, 0)};
  const StageCost &first = report_.costs.stages[0], &last = report_.costs.stages[1];
  const double f = 1 * last.f / first.f, b = 2 * last.whole_backward() / first.whole_backward();
  ASSERT_GT(f, 1);
  const auto step = simulate_rehearsed(planned_, report_, ranks, false);
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->seconds, 1 + kMicros * (f + b) + 2, 1e-6);
  EXPECT_EQ(step->sources, (std::vector<StageSource>{{0, 0, false}, {0, 0, true}}));
}

// A rank alone waits for no collective without --wait planned.
TEST_F(RehearsedTensorRanks, AddsPlannedCollectivesThatWereNotWaitedFor) {
  const std::vector<RehearsedRank> ranks{rank_with(0, 0, 1, 2, 0.5), rank_with(2, 1, 3, 5, 0.25)};
  const StageCalls &first = report_.calls[0], &last = report_.calls[1];
  const double calls = first.f + first.i + first.w + kMicros * (last.f + last.i + last.w);
  ASSERT_GT(calls, 0.1);
  EXPECT_NEAR(simulate_rehearsed(planned_, report_, ranks, true)->seconds, kStep, 1e-6);
  EXPECT_NEAR(simulate_rehearsed(planned_, report_, ranks, false)->seconds, kStep + calls, 1e-6);
}

TEST_F(RehearsedTensorRanks, ComparesActionsWithWhatTheyContain) {
  const MeasuredAction forward{ActionKind::F, 1, 4, 3}, message{ActionKind::RecvF, 1, 4, 3};
  const MeasuredAction part{ActionKind::F, 1, 20, 3, true};
  const double all = report_.costs.stages[1].f;
  EXPECT_EQ(planned_seconds(planned_, report_, forward, true), all);
  EXPECT_NEAR(*planned_seconds(planned_, report_, part, true), all / 5, 1e-12);
  EXPECT_NEAR(*planned_seconds(planned_, report_, forward, false), all - report_.calls[1].f, 1e-12);
  EXPECT_FALSE(planned_seconds(planned_, report_, message, false));
}

TEST_F(RehearsedStepTest, NothingMeasuredIsNoStep) {
  RehearsedRank failed;
  failed.failure = "no memory";
  EXPECT_FALSE(simulate_rehearsed(planned_, report_, std::vector{failed}, false));
}

TEST(MeasuredTimes, AnActionOnABlockStandsForAllBlocks) {
  RehearsedRank rank;
  rank.actions = {{ActionKind::F, 0, 2, 1}, {ActionKind::B, 0, 10, 0.5, true}};
  const StageTimes times = measured_times(rank, 0, 5);
  EXPECT_EQ(times.f, 1);
  EXPECT_EQ(times.b, 2.5);
  EXPECT_FALSE(times.i);
  EXPECT_FALSE(times.step);
}

}  // namespace
}  // namespace trifold::test
