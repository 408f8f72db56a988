// Encoders with norms of inputs, no norm before the first attention, norms without biases, gates, rotary positions and
// windows on both sides, as ModernBERT, here with pairs of sentences: the same curve on every mesh, the same bits where
// nothing is summed in another order, and after a resume, and plans that foretell memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "files/file.h"
#include "support/compare.h"
#include "support/planned_memory.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// Three kinds of layers: without the first norm and without a window, with a window, and with neither.
PretrainConfig encoder_run(bool f64) {
  PretrainConfig config = small_run();
  ModelConfig& model = config.model;
  model.model_type = ModelType::Bert;
  model.pre_norm = model.no_first_norm = true;
  model.disable_bias_norm = model.disable_bias_linear = true;
  model.geglu = true;
  model.gelu = GeluKind::Erf;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.num_layers = 3;
  model.window_size = WindowSize{2, 2};
  model.window_attn_skip_freq = "[0,1,0]";
  model.window_rotary_base = 100;
  model.hidden_dropout = model.attention_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 2000;
  config.eval.eval_iters = 2;
  return config;
}

struct EncoderMesh {
  int dp, tp, pp, cp = 1;
  int zero = 0;
  const char* schedule = "1f1b";
  ContextExchange exchange = ContextExchange::AllGather;
  RecomputeGranularity recompute = RecomputeGranularity::None;
};

PretrainConfig encoder_on(const PretrainConfig& base, const EncoderMesh& mesh) {
  PretrainConfig config = on_mesh(base, mesh.dp, mesh.tp, mesh.pp, mesh.cp);
  if (mesh.pp > 1) config = scheduled(config, mesh.schedule, 1);
  config.mesh.sequence_parallel = mesh.tp > 1;
  config.mesh.recompute_granularity = mesh.recompute;
  if (mesh.cp > 1) config.mesh.cp_comm_type = mesh.exchange;
  config.zero.zero_stage = mesh.zero;
  return config;
}

std::string name_of(const EncoderMesh& m) {
  return fmt::format("dp {} tp {} pp {} cp {} zero {} {} {} recompute {}", m.dp, m.tp, m.pp, m.cp, m.zero,
                     m.schedule, name_of(m.exchange), static_cast<int>(m.recompute));
}

constexpr EncoderMesh kEncoderMeshes[] = {
    {1, 2, 1},
    {2, 2, 2, 1, 3, "zb-h1"},
    {1, 1, 3, 1, 0, "1f1b", ContextExchange::AllGather, RecomputeGranularity::Full},
    {2, 1, 1, 1, 2},
    {1, 2, 1, 2},
    {1, 1, 2, 2, 0, "zb-h1", ContextExchange::AllToAll},
    {2, 1, 1, 2, 1, "1f1b", ContextExchange::Ring},
    {1, 2, 1, 1, 0, "1f1b", ContextExchange::AllGather, RecomputeGranularity::Selective}};

void expect_curves_agree(const PretrainConfig& base, std::span<const EncoderMesh> meshes) {
  const Curve one = train_and_evaluate(base);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const EncoderMesh& mesh : meshes) {
    SCOPED_TRACE(name_of(mesh));
    const Curve cut = train_and_evaluate(encoder_on(base, mesh));
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
    EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
    EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
  }
}

TEST(PreNormEncoder, CurvesAgreeOnEveryMesh) { expect_curves_agree(encoder_run(true), kEncoderMeshes); }

// Other parts of a GPT's layers in an encoder, with norms of sums, and with norms of inputs and of outputs.
TEST(PreNormEncoder, LayersMayBeThoseOfAGpt) {
  PretrainConfig sums = encoder_run(true);
  sums.model.pre_norm = sums.model.no_first_norm = false;
  sums.model.normalization = Normalization::RmsNorm;
  sums.model.disable_bias_norm = sums.model.geglu = false;
  sums.model.gelu = GeluKind::Tanh;
  sums.model.swiglu = sums.model.add_qkv_bias = sums.model.add_head_bias = true;
  sums.model.group_query_attention = true;
  sums.model.num_query_groups = 2;
  expect_curves_agree(sums, std::span(kEncoderMeshes).first(2));
  PretrainConfig both = encoder_run(true);
  both.model.norm_position = NormPosition::Both;
  both.model.qk_layernorm = both.model.apply_layernorm_1p = true;
  both.model.geglu = false;
  both.model.gelu = GeluKind::Tanh;
  both.model.squared_relu = true;
  expect_curves_agree(both, std::span(kEncoderMeshes).subspan(4, 2));
}

// Stages, ZeRO and recomputation sum nothing in another order.
TEST(PreNormEncoder, PipelinesAndZeroChangeNoBit) {
  const PretrainConfig base = encoder_run(false);
  const Curve plain = train_and_evaluate(encoder_on(base, {2, 1, 1}));
  for (const EncoderMesh& mesh :
       {EncoderMesh{2, 1, 3, 1, 0, "zb-h1"},
        {2, 1, 1, 1, 3},
        {2, 1, 1, 1, 2, "1f1b", ContextExchange::AllGather, RecomputeGranularity::Full}}) {
    SCOPED_TRACE(name_of(mesh));
    const Curve curve = train_and_evaluate(encoder_on(base, mesh));
    EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame);
    EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame);
    EXPECT_EQ(curve.valid_loss, plain.valid_loss);
  }
}

TEST(PreNormEncoder, ResumesBitForBit) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("trifold_encoder_" + random_id())).string();
  const PretrainConfig config = encoder_on(encoder_run(false), {2, 1, 1, 1, 1});
  const Curve whole = train(config, {.evaluate = true});
  train(config, {.stop_after = 2, .save = folder});
  const Curve rest = train(config, {.load = folder, .evaluate = true});
  std::filesystem::remove_all(folder);
  ASSERT_EQ(rest.losses.size(), 2U);
  EXPECT_EQ(rest.losses[0], whole.losses[2]);
  EXPECT_EQ(rest.losses[1], whole.losses[3]);
  EXPECT_EQ(rest.valid_loss, whole.valid_loss);
}

TEST(PreNormEncoder, APlanForetellsMemory) {
  for (const EncoderMesh& mesh : {EncoderMesh{1, 2, 1}, {2, 1, 3, 1, 3, "zb-h1"}, {1, 1, 1, 2}}) {
    SCOPED_TRACE(name_of(mesh));
    PretrainConfig config = encoder_on(encoder_run(false), mesh);
    config.model.bert_no_binary_head = true;  // the head for pairs is on the rank that has their first rows
    compare_with_plan(config, expect_planned_memory);
  }
}

// Each of them changes the model.
TEST(PreNormEncoder, EveryChoiceCounts) {
  const PretrainConfig base = encoder_run(false);
  const double loss = train_and_evaluate(base).losses.front();
  const auto changed = [&](auto change) {
    PretrainConfig config = base;
    change(config.model);
    const std::vector<double> losses = train_and_evaluate(config).losses;
    return losses.back();
  };
  const double last = changed([](ModelConfig&) {});
  EXPECT_NE(last, loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.window_size->left = 3; }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.window_size->right = 3; }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.window_rotary_base.reset(); }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.no_first_norm = false; }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.pre_norm = model.no_first_norm = false; }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.disable_bias_norm = false; }), last);
  EXPECT_NE(changed([](ModelConfig& model) { model.add_head_bias = true; }), last);
}

// Factors of the frequencies for long samples, in a part of each head.
TEST(LongRope, CurvesAgreeOnEveryMesh) {
  PretrainConfig base = small_run();
  base.model.position_embedding_type = PositionEmbedding::Rope;
  base.model.rotary_percent = 0.5;
  const int64_t pairs = rotated_width(base.model) / 2;
  base.model.rope_type = RopeType::LongRope;
  base.model.original_max_position_embeddings = base.model.seq_length / 2;
  base.model.rotary_scaling_factor = 4;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    base.model.rope_short_factor.push_back({1 + 0.5 * static_cast<double>(pair)});
    base.model.rope_long_factor.push_back({1.5 + 2 * static_cast<double>(pair)});
  }
  base.precision.f64 = true;
  base.batch.micro_batch_size = 1;
  base.batch.train_iters = base.lr.lr_decay_iters.emplace(4);
  expect_curves_agree(base, std::span(kEncoderMeshes).first(5));
  const double longer = train_and_evaluate(base).losses.back();
  base.model.original_max_position_embeddings = base.model.seq_length;
  const double shorter = train_and_evaluate(base).losses.back();
  EXPECT_NE(longer, shorter);
  base.model.rotary_attention_factor = 1;
  EXPECT_NE(train_and_evaluate(base).losses.back(), shorter);
}

}  // namespace
}  // namespace trifold::test
