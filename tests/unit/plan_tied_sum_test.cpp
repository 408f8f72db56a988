// The forecast of the sum of the gradients of both uses of the token embedding, with the output layer in parts.
#include <gtest/gtest.h>

#include "config/rules/validate.h"
#include "plan/report.h"

namespace trifold::test {
namespace {

// Seconds of the REDUCE_TIED of two ranks whose four stages are cut like this; 0 if there is none.
double tied_sum_of(const char* layout) {
  PlanConfig config;
  PretrainConfig& run = config.run;
  run.model.num_layers = 4;
  run.model.hidden_size = 64;
  run.model.num_attention_heads = 4;
  run.model.seq_length = 32;
  run.model.vocab_size = 1024;
  run.mesh.ranks = run.mesh.pipeline_model_parallel_size = 2;
  run.mesh.pipeline_vocab_parts = 4;
  run.mesh.cut.pipeline_model_parallel_layout = layout;
  run.pipeline.schedule = Schedule::ZbV;
  run.pipeline.num_virtual_stages_per_pipeline_rank = 2;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 4;
  for (const TimelineEntry& entry : make_plan_report(resolve(config)).simulation.timeline)
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
