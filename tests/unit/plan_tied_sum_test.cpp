// How a plan counts the weights that the token embedding shares with the output layer: a sum of gradients between ranks if
// the layer is one block; otherwise lookups on the ranks of its parts.
#include <gtest/gtest.h>

#include "support/planned_runs.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

// Two ranks with two stages each, by default in a V, with the last stage on the first rank.
PlanReport plan_of(const char* layout, int parts, Schedule schedule = Schedule::ZbV) {
  PretrainConfig run = gpt_of({4, 64, 4, 32, 1024}, 2);
  run.mesh.pipeline_model_parallel_size = 2;
  run.mesh.pipeline_vocab_parts = parts;
  run.mesh.cut.pipeline_model_parallel_layout = layout;
  run.pipeline.schedule = schedule;
  run.pipeline.num_virtual_stages_per_pipeline_rank = 2;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 4;
  return report_of(plan_config(run));
}

double seconds_of(const PlanReport& report, ActionKind kind, int stage) {
  double seconds = 0;
  for (const TimelineEntry& entry : report.simulation.timeline)
    if (entry.action.kind == kind && entry.action.stage == stage) seconds += entry.end - entry.begin;
  return seconds;
}

TEST(SharedTokens, AreSummedForAHeadOnAnotherRank) {
  const auto seconds = [](Schedule schedule) {
    return seconds_of(plan_of("Ett|t|t|L", 1, schedule), ActionKind::ReduceTied, 0);
  };
  EXPECT_GT(seconds(Schedule::Interleaved), 0);
  EXPECT_EQ(seconds(Schedule::ZbV), 0);
}

// Messages of lookups instead, of the ranks but the first one that have parts. Each part is on one rank alone.
TEST(SharedTokens, AreLookedUpAtThePartsOfTheHead) {
  const PlanReport both = plan_of("Ett|t|tL|LLL", 4), first = plan_of("Ett|t|t|LLLL", 4);
  ASSERT_EQ(both.stages.size(), 5U);
  EXPECT_EQ(both.stages_per_rank, 2);
  EXPECT_EQ(both.stages[0].rank, 1);
  EXPECT_EQ(both.stages[0].lookups, 1);
  EXPECT_EQ(seconds_of(both, ActionKind::ReduceTied, 1), 0);
  EXPECT_GT(seconds_of(both, ActionKind::SendF, 0), 0);
  EXPECT_EQ(first.stages.size(), 4U);

  const auto elements = [](const PlanReport& report) {
    int64_t count = 0;
    for (const StageReport& stage : report.stages) count += stage.parameters;
    return count;
  };
  EXPECT_EQ(elements(both), both.parameters);
  EXPECT_EQ(elements(first), first.parameters);
  EXPECT_EQ(both.stages[0].parameters, 1024 / 4 * 64);
}

}  // namespace
}  // namespace trifold::test
