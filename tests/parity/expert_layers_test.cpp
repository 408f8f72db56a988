// Models whose layers differ: some have experts beside a gated network for all tokens, some have one network.
#include <gtest/gtest.h>

#include "config/rules/validate.h"
#include "plan/report.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig mixed_run(const char* layers) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  config.model.qk_layernorm = false;
  config.model.add_qkv_bias = true;
  config.model.num_layers = 4;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 3;
  config.model.moe_router_pre_softmax = true;
  config.model.moe_ffn_hidden_size = 12;
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.moe_shared_expert_gate = true;
  config.model.moe_layer_freq = layers;
  config.model.moe_aux_loss_coeff = 0.01;
  config.model.hidden_dropout = 0.1;
  set_four_steps(config);
  return config;
}

struct Place {
  int dp, tp, pp, ep, zero;
  const char* schedule = "1f1b";
  RecomputeGranularity recompute = RecomputeGranularity::None;
  int cp = 1;
};

PretrainConfig placed(const PretrainConfig& base, const Place& place) {
  PretrainConfig config = scheduled(on_mesh(base, place.dp, place.tp, place.pp, place.cp), place.schedule);
  config.mesh.sequence_parallel = place.tp > 1;
  config.mesh.expert_model_parallel_size = place.ep;
  config.mesh.recompute_granularity = place.recompute;
  config.zero.zero_stage = place.zero;
  return config;
}

TEST(ExpertLayers, CurvesAgreeOnEveryMesh) {
  const PretrainConfig base = mixed_run("[0]+[1,0]+[1]");
  const Curve one = train_and_evaluate(base);
  for (const Place& place : {Place{1, 2, 1, 2, 0}, Place{2, 2, 2, 4, 3}, Place{1, 1, 4, 1, 0, "zb-h1"},
                             Place{2, 1, 2, 2, 2, "1f1b", RecomputeGranularity::Full},
                             Place{1, 2, 2, 4, 1, "1f1b", RecomputeGranularity::Selective, 2}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} ep {} zero {}", place.dp, place.tp, place.pp, place.cp,
                             place.ep, place.zero));
    const Curve cut = train_and_evaluate(placed(base, place));
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
    EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
    EXPECT_LT(relative_error(cut.balances, one.balances), 1e-11);
    EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
  }
}

TEST(ExpertLayers, APatternThatNamesEveryLayerChangesNothing) {
  EXPECT_EQ(train(mixed_run("[1]*4")).losses, train(mixed_run("1")).losses);
  EXPECT_EQ(train(mixed_run("2")).losses, train(mixed_run("([1,0]*2)")).losses);
}

TEST(ExpertLayers, ARunGoesOnExactlyAndOnAnotherMesh) {
  const TempDir folder;
  const PretrainConfig config = mixed_run("[0]+[1]*3");
  const Curve whole = train(config);
  train(config, 2, "", folder.path().string());
  const Curve rest = train(config, 0, folder.path().string());
  const Curve elsewhere = train(placed(config, {2, 1, 2, 2, 1}), 0, folder.path().string());
  ASSERT_EQ(rest.losses.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rest.losses[i], whole.losses[i + 2]);
    EXPECT_LT(relative_error(elsewhere.losses[i], whole.losses[i + 2]), 1e-11);
  }
}

TEST(ExpertLayers, APlanForetellsTheMemory) {
  PretrainConfig config = placed(mixed_run("[0]*2+[1]*2"), {2, 1, 2, 2, 1});
  PlanConfig plan;
  plan.run = config;
  const PlanReport report = make_plan_report(resolve(plan));
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.step();
    const auto stage = static_cast<size_t>(trainer.replica().mesh().coord(Axis::Pp));
    EXPECT_EQ(trainer.memory().predicted_activations, report.memory[stage].predicted_activations);
    EXPECT_EQ(trainer.memory().parameters, report.memory[stage].parameters);
  });
}

}  // namespace
}  // namespace trifold::test
