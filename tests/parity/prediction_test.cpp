// Modules that predict further tokens: the same curves on every mesh, the same bits where nothing is summed in another
// order, exact resumption, and plans that foretell memory. Losses and gradients are compared with PyTorch's in
// deepseek_test.cpp, and with finite differences in gradient_test.cpp.
#include <gtest/gtest.h>

#include <filesystem>

#include "files/file.h"
#include "support/expert_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

PretrainConfig prediction_run(bool f64, int64_t modules = 2, bool untied = true) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  config.model.untie_embeddings_and_output_weights = untied;
  config.model.mtp_num_layers = modules;
  config.model.mtp_loss_scaling_factor = 0.5;
  config.model.hidden_dropout = 0.1;
  config.zero.zero_min_unit_params = 2000;
  set_four_steps(config, f64);
  return config;
}

// Two kinds of layers, of which the last has experts that a bias balances; so have the modules.
PretrainConfig prediction_with_experts(bool f64) {
  PretrainConfig config = run_with_experts(4, f64);
  config.model.position_embedding_type = PositionEmbedding::Rope;
  config.model.moe_layer_freq = "[0,1,1]";
  config.model.moe_router_score_function = RouterScore::Sigmoid;
  config.model.moe_router_enable_expert_bias = true;
  config.model.moe_router_bias_update_rate = 0.05;
  config.model.mtp_num_layers = 2;
  return config;
}

void expect_curve_of(const Curve& cut, const Curve& one) {
  EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
  EXPECT_LT(relative_error(cut.later_losses, one.later_losses), 1e-11);
  EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
}

void expect_bits_of(const Curve& curve, const Curve& plain) {
  EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame);
  EXPECT_EQ(first_difference<double>(curve.later_losses, plain.later_losses), kSame);
  EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame);
  EXPECT_EQ(curve.valid_loss, plain.valid_loss);
}

TEST(Prediction, CurvesAgreeOnEveryMesh) {
  for (const bool untied : {true, false}) {
    const PretrainConfig base = prediction_run(true, 2, untied);
    const Curve one = train_and_evaluate(base);
    ASSERT_EQ(one.later_losses.size(), 8U);
    EXPECT_LT(one.later_losses[6], one.later_losses[0]);
    for (const ExpertMesh& mesh : {ExpertMesh{.tp = 2},
                                   {.dp = 2, .tp = 2, .pp = 2, .zero = 3, .schedule = "zb-h1"},
                                   {.pp = 3, .recompute = RecomputeGranularity::Full},
                                   {.dp = 2, .zero = 2},
                                   {.tp = 2, .cp = 2},
                                   {.pp = 2, .cp = 2, .exchange = ContextExchange::Ring},
                                   {.pp = 2, .schedule = "zb-v", .chunks = 2}}) {
      SCOPED_TRACE(mesh.name() + (untied ? " untied" : " tied"));
      expect_curve_of(train_and_evaluate(mesh.of(base)), one);
    }
    // Tensor ranks with whole activations.
    expect_curve_of(train_and_evaluate(on_mesh(base, 1, 2)), one);
  }
}

// With tied embeddings one gradient has the sums of the output layer's forward and of the modules' backward, in the
// order of the schedule.
TEST(Prediction, PipelinesAndZeroChangeNoBit) {
  for (const bool untied : {true, false}) {
    const PretrainConfig base = prediction_run(false, 2, untied);
    const Curve plain = train_and_evaluate(ExpertMesh{.dp = 2}.of(base));
    for (const ExpertMesh& mesh : {ExpertMesh{.dp = 2, .pp = 2, .schedule = untied ? "zb-h1" : "1f1b"},
                                   {.dp = 2, .zero = 3},
                                   {.dp = 2, .pp = 2, .zero = 3},
                                   {.dp = 2, .recompute = RecomputeGranularity::Full}}) {
      SCOPED_TRACE(mesh.name() + (untied ? " untied" : " tied"));
      expect_bits_of(train_and_evaluate(mesh.of(base)), plain);
    }
  }
}

TEST(Prediction, ModulesWithExpertsAgreeOnEveryMesh) {
  const PretrainConfig base = prediction_with_experts(true);
  const Curve one = train_and_evaluate(base);
  for (const ExpertMesh& mesh : {ExpertMesh{.dp = 2, .ep = 2},
                                 {.tp = 2, .pp = 2, .ep = 2},
                                 {.dp = 2, .cp = 2, .ep = 2, .etp = 2, .zero = 1},
                                 {.dp = 2, .pp = 2, .ep = 2, .zero = 3, .schedule = "zb-h1"}}) {
    SCOPED_TRACE(mesh.name());
    const Curve cut = train_and_evaluate(mesh.of(base));
    expect_curve_of(cut, one);
    expect_alike(cut, one);
  }
}

TEST(Prediction, ARunThatResumesGoesOnWithTheSameBits) {
  const auto folder = std::filesystem::temp_directory_path() / ("trifold_prediction_" + random_id());
  for (const PretrainConfig& base : {prediction_run(false), prediction_with_experts(false)}) {
    const PretrainConfig config = ExpertMesh{.dp = 2, .pp = 2, .zero = 1}.of(base);
    std::filesystem::remove_all(folder);
    const Curve whole = train(config);
    train(config, 2, "", folder.string());
    const Curve rest = train(config, 0, folder.string());
    ASSERT_EQ(rest.losses.size(), whole.losses.size() - 2);
    for (size_t i = 0; i < rest.losses.size(); ++i) EXPECT_EQ(rest.losses[i], whole.losses[i + 2]) << i;
    for (size_t i = 0; i < rest.later_losses.size(); ++i)
      EXPECT_EQ(rest.later_losses[i], whole.later_losses[i + 4]) << i;
  }
  std::filesystem::remove_all(folder);
}

TEST(Prediction, APlanForetellsMemory) {
  for (const bool untied : {true, false})
    for (const ExpertMesh& mesh :
         {ExpertMesh{.tp = 2}, {.dp = 2, .pp = 2, .zero = 3, .schedule = "zb-h1"}, {.cp = 2}}) {
      SCOPED_TRACE(mesh.name());
      compare_with_plan(mesh.of(prediction_run(false, 2, untied)), expect_planned_memory);
    }
}

// The factor weighs the mean loss of the modules: with another one, only the first loss of the model stays.
TEST(Prediction, TheFactorCounts) {
  PretrainConfig config = prediction_run(false, 1);
  const Curve one = train_and_evaluate(config);
  config.model.mtp_loss_scaling_factor = 0.25;
  const Curve other = train_and_evaluate(config);
  EXPECT_EQ(one.losses.front(), other.losses.front());
  EXPECT_EQ(one.later_losses.front(), other.later_losses.front());
  EXPECT_NE(one.losses.back(), other.losses.back());
}

}  // namespace
}  // namespace trifold::test
