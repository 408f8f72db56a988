// The forecast of the sum of the gradients of both uses of the token embedding, with the output layer in parts.
#include <gtest/gtest.h>

#include "plan/report.h"
#include "support/planned_runs.h"

namespace trifold::test {
namespace {

// Seconds of the REDUCE_TIED of two ranks whose four stages are cut like this; 0 if there is none.
double tied_sum_of(const char* layout) {
  PretrainConfig run = gpt_of({4, 64, 4, 32, 1024}, 2);
  run.mesh.pipeline_model_parallel_size = 2;
  run.mesh.pipeline_vocab_parts = 4;
  run.mesh.cut.pipeline_model_parallel_layout = layout;
  run.pipeline.schedule = Schedule::ZbV;
  run.pipeline.num_virtual_stages_per_pipeline_rank = 2;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 4;
  for (const TimelineEntry& entry : make_plan_report(plan_config(run)).simulation.timeline)
    if (entry.action.kind == ActionKind::ReduceTied) return entry.end - entry.begin;
  return 0;
}

// In a V, the first rank also has the last stage. It sends nothing for the parts of the head that are there.
TEST(TiedSum, CountsThePartsOnOtherRanks) {
  const double one = tied_sum_of("Ett|t|tL|LLL");
  EXPECT_GT(one, 0);
  EXPECT_DOUBLE_EQ(tied_sum_of("Ett|t|tLL|LL"), 2 * one);
  EXPECT_DOUBLE_EQ(tied_sum_of("Ett|t|tLLL|L"), 3 * one);
}

}  // namespace
}  // namespace trifold::test
