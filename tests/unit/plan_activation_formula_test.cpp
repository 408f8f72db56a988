// Bytes of activations against the formulas of Korthikanti et al., "Reducing activation recomputation in
// large transformer models" (arXiv 2205.05198), section 4.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/planned_runs.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

struct Way {
  int tensor = 1;
  bool sequence_parallel = false;
  RecomputeGranularity recompute = RecomputeGranularity::None;
};

// Width 1024, 16 heads, bf16, one micro-batch of 1024 tokens a rank; 125 million parameters with 8 layers.
PretrainConfig gpt(int64_t layers, int ranks, const Way& way) {
  PretrainConfig run = gpt_of({layers, 1024, 16, 1024, 24000}, ranks);
  run.mesh.tensor_model_parallel_size = way.tensor;
  run.mesh.sequence_parallel = way.sequence_parallel;
  run.mesh.recompute_granularity = way.recompute;
  run.batch.micro_batch_size = 1;
  run.precision.bf16 = true;
  return run;
}

double activations(int64_t layers, int ranks, const Way& way) {
  const PlanConfig plan = plan_config(gpt(layers, ranks, way));
  return static_cast<double>(ranks_of(plan)[0].memory.predicted_activations);
}

// Bytes of a layer over s b h: 10 + 24 / t, or 34 / t where sequences are cut too. Of the 10, two are masks
// of dropout, which this engine makes again from their counter instead of holding them; the scores of
// attention, 5 a s / h more, are never held. A layer whose input alone is kept: 2, or 2 / t.
double formula(const Way& way) {
  const double t = way.tensor;
  if (way.recompute == RecomputeGranularity::Full) return way.sequence_parallel ? 2 / t : 2;
  return way.sequence_parallel ? 32 / t : 8 + 24 / t;
}

TEST(Activations, OfALayerAreThoseOfTheFormula) {
  for (const int ranks : {8, 64})
    for (const Way& way :
         {Way{}, Way{4}, Way{4, true}, Way{8, true}, Way{1, false, RecomputeGranularity::Full},
          Way{8, true, RecomputeGranularity::Full}}) {
      SCOPED_TRACE(fmt::format("{} ranks, t = {}, sequence parallel {}, recompute {}", ranks, way.tensor,
                               way.sequence_parallel, static_cast<int>(way.recompute)));
      const double layer = (activations(8, ranks, way) - activations(4, ranks, way)) / 4 / (1024 * 1024);
      EXPECT_NEAR(layer, formula(way), 0.02 * formula(way));
    }
}

// A stage that is computed again keeps the inputs of its layers for a micro-batch in flight, and not its output,
// which is the input of the next rank. The second of four ranks has one micro-batch more in flight than the third.
TEST(Activations, OfARecomputedStageAreTheInputsOfItsLayers) {
  const std::pair<int, const char*> stages[] = {{1, "Et|t|t|tL"}, {3, "Ettt|ttt|ttt|tttL"}};
  for (const auto& [layers, layout] : stages) {
    PlanConfig plan;
    plan.run = gpt(4 * layers, 4, {1, false, RecomputeGranularity::Full});
    plan.run.mesh.pipeline_model_parallel_size = 4;
    plan.run.mesh.cut.pipeline_model_parallel_layout = layout;
    plan.run.batch.global_batch_size = 16;
    const std::vector<PlannedRank> ranks = ranks_of(resolve(plan));
    const size_t one = ranks[1].memory.predicted_activations - ranks[2].memory.predicted_activations;
    EXPECT_NEAR(static_cast<double>(one) / (2 * 1024 * 1024), layers, 0.01) << layout;
  }
}

// `selective` makes again what costs no matrix product: outputs of norms and of GELU. That is less than the
// paper's selective recomputation holds, which drops the scores of attention alone.
TEST(Activations, OfSelectiveAreLess) {
  const auto layer = [](const Way& way) {
    return (activations(8, 8, way) - activations(4, 8, way)) / 4 / (1024 * 1024);
  };
  EXPECT_LT(layer({1, false, RecomputeGranularity::Selective}), 0.65 * 32);
  EXPECT_LT(layer({4, true, RecomputeGranularity::Selective}), 0.65 * 8);
}

}  // namespace
}  // namespace trifold::test
