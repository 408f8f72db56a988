// Layers whose weight gradients compute something again, and so read weights in W, which stage 3 of ZeRO must gather.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

void expect_stage_3_to_change_no_bit(const PretrainConfig& base) {
  for (const auto& [schedule, chunks] : {std::pair("zb-h1", 1), {"dualpipe-v", 2}, {"1f1b", 1}})
    for (const RecomputeGranularity recompute : {RecomputeGranularity::None, RecomputeGranularity::Full}) {
      SCOPED_TRACE(fmt::format("{} recompute {}", schedule, static_cast<int>(recompute)));
      PretrainConfig config = scheduled(on_mesh(base, 2, 1, 2), schedule, chunks);
      config.mesh.recompute_granularity = recompute;
      const Curve whole = train_and_evaluate(config);
      config.zero.zero_stage = 3;
      Curve sharded;
      ASSERT_NO_THROW(sharded = train_and_evaluate(config));
      EXPECT_EQ(sharded.losses, whole.losses);
      EXPECT_EQ(sharded.grad_norms, whole.grad_norms);
      EXPECT_EQ(sharded.valid_loss, whole.valid_loss);
    }
}

PretrainConfig short_run() {
  PretrainConfig config = small_run();
  config.model.num_layers = 6;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 8;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 1000;
  config.eval.eval_iters = 1;
  return config;
}

TEST(RepeatedWeights, OfTiles) {
  PretrainConfig config = short_run();
  config.mesh.tiled_mlp = 3;
  expect_stage_3_to_change_no_bit(config);
}

TEST(RepeatedWeights, OfExpertsInRounds) {
  PretrainConfig config = short_run();
  config.model.num_experts = 4;
  config.model.disable_bias_linear = true;
  config.mesh.expert_model_parallel_size = 2;
  config.mesh.moe_buffer_factor = 0.4;
  expect_stage_3_to_change_no_bit(config);
}

}  // namespace
}  // namespace trifold::test
