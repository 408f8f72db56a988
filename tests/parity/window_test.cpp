// Layers with a window, attention sinks, a soft cap and layers that do not rotate: the same curve on every mesh, the same
// bits where nothing is summed in another order, and plans that foretell memory.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/planned_memory.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// Three kinds of layers: with a window, with a window but without rope, and without a window.
PretrainConfig window_run(bool f64) {
  PretrainConfig config = small_run();
  ModelConfig& model = config.model;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.normalization = Normalization::RmsNorm;
  model.swiglu = model.disable_bias_linear = true;
  model.num_layers = 3;
  model.window_size = WindowSize{4, 0};
  model.window_attn_skip_freq = "3";
  model.no_rope_freq = "2";
  model.window_rotary_base = 100;
  model.softmax_type = SoftmaxType::Learnable;
  model.attn_logit_softcapping = 2;
  model.hidden_dropout = model.attention_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 2000;
  config.eval.eval_iters = 2;
  return config;
}

TEST(Window, CurvesAgreeOnEveryMesh) {
  const PretrainConfig base = window_run(true);
  const Curve one = train_and_evaluate(base);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const RunMesh& mesh :
       {RunMesh{.tp = 2, .sequence_parallel = true},
        {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"},
        {.pp = 3, .recompute = RecomputeGranularity::Full},
        {.dp = 2, .zero = 2},
        {.tp = 2, .cp = 2, .sequence_parallel = true},
        {.pp = 2, .cp = 2, .schedule = "zb-h1", .exchange = ContextExchange::AllToAll},
        {.dp = 2, .cp = 2, .zero = 1, .exchange = ContextExchange::Ring},
        {.tp = 2, .sequence_parallel = true, .recompute = RecomputeGranularity::Selective}}) {
    SCOPED_TRACE(mesh.name());
    const Curve cut = train_and_evaluate(mesh.of(base));
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
    EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
    EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
  }
}

// Stages, ZeRO and recomputation sum nothing in another order.
TEST(Window, PipelinesAndZeroChangeNoBit) {
  const PretrainConfig base = window_run(false);
  const Curve plain = train_and_evaluate(RunMesh{.dp = 2}.of(base));
  for (const RunMesh& mesh : {RunMesh{.dp = 2, .pp = 3, .schedule = "zb-h1"},
                              {.dp = 2, .zero = 3},
                              {.dp = 2, .zero = 2, .recompute = RecomputeGranularity::Full}}) {
    SCOPED_TRACE(mesh.name());
    const Curve curve = train_and_evaluate(mesh.of(base));
    EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame);
    EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame);
    EXPECT_EQ(curve.valid_loss, plain.valid_loss);
  }
}

TEST(Window, APlanForetellsMemory) {
  for (const RunMesh& mesh : {RunMesh{.tp = 2, .sequence_parallel = true},
                              {.dp = 2, .pp = 3, .zero = 3, .schedule = "zb-h1"},
                              {.cp = 2}}) {
    SCOPED_TRACE(mesh.name());
    compare_with_plan(mesh.of(window_run(false)), expect_planned_memory);
  }
}

// Each of them changes the model.
TEST(Window, EveryChoiceCounts) {
  const PretrainConfig base = window_run(false);
  const double loss = train_and_evaluate(base).losses.front();
  const auto without = [&](auto change) {
    PretrainConfig config = base;
    change(config.model);
    return train_and_evaluate(config).losses.front();
  };
  EXPECT_NE(without([](ModelConfig& model) { model.window_size->left = 5; }), loss);
  EXPECT_NE(without([](ModelConfig& model) { model.window_attn_skip_freq.reset(); }), loss);
  EXPECT_NE(without([](ModelConfig& model) { model.no_rope_freq.reset(); }), loss);
  EXPECT_NE(without([](ModelConfig& model) { model.window_rotary_base.reset(); }), loss);
  EXPECT_NE(without([](ModelConfig& model) { model.softmax_type = SoftmaxType::Vanilla; }), loss);
  EXPECT_NE(without([](ModelConfig& model) { model.attn_logit_softcapping.reset(); }), loss);
}

}  // namespace
}  // namespace trifold::test
