// Models whose layers differ: some have experts beside a gated network for all tokens, some have one network.
#include <gtest/gtest.h>

#include "support/expert_runs.h"
#include "support/files.h"
#include "support/planned_memory.h"

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

TEST(ExpertLayers, CurvesAgreeOnEveryMesh) {
  const PretrainConfig base = mixed_run("[0]+[1,0]+[1]");
  const Curve one = train_and_evaluate(base);
  for (const ExpertMesh& mesh :
       {ExpertMesh{.tp = 2, .ep = 2},
        {.dp = 2, .tp = 2, .pp = 2, .ep = 4, .zero = 3},
        {.pp = 4, .schedule = "zb-h1"},
        {.dp = 2, .pp = 2, .ep = 2, .zero = 2, .recompute = RecomputeGranularity::Full},
        {.tp = 2, .pp = 2, .cp = 2, .ep = 4, .zero = 1, .recompute = RecomputeGranularity::Selective}}) {
    SCOPED_TRACE(mesh.name());
    expect_alike(train_and_evaluate(mesh.of(base)), one);
  }
}

TEST(ExpertLayers, APatternThatNamesEveryLayerChangesNothing) {
  EXPECT_EQ(train(mixed_run("[1]*4")).losses, train(mixed_run("1")).losses);
  EXPECT_EQ(train(mixed_run("2")).losses, train(mixed_run("([1,0]*2)")).losses);
}

constexpr ExpertMesh kTwoStages{.dp = 2, .pp = 2, .ep = 2, .zero = 1};

TEST(ExpertLayers, ARunGoesOnExactlyAndOnAnotherMesh) {
  const TempDir folder;
  const PretrainConfig config = mixed_run("[0]+[1]*3");
  const Curve whole = train(config);
  train(config, 2, "", folder.path().string());
  const Curve rest = train(config, 0, folder.path().string());
  const Curve elsewhere = train(kTwoStages.of(config), 0, folder.path().string());
  ASSERT_EQ(rest.losses.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rest.losses[i], whole.losses[i + 2]);
    EXPECT_LT(relative_error(elsewhere.losses[i], whole.losses[i + 2]), 1e-11);
  }
}

TEST(ExpertLayers, APlanForetellsTheMemory) {
  compare_with_plan(kTwoStages.of(mixed_run("[0]*2+[1]*2")), expect_planned_memory);
}

}  // namespace
}  // namespace trifold::test
