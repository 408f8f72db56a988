#include "config/commands/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

const double kNan = std::nan("");

const std::vector<ValidateCase>& cases() {
  using C = PretrainConfig;
  static const std::vector<ValidateCase> kCases = {
      {"--num-layers needs a value: at least 1", [](C& c) { c.model.num_layers = 0; }},
      {"--tune-products fast.json needs --device cuda", [](C& c) { c.mesh.tune_products = "fast.json"; }},
      {"--no-deterministic-mode needs --device cuda", [](C& c) { c.mesh.no_deterministic_mode = true; }},
      {"--no-deterministic-mode is not possible with --check-overlap 2",
       [](C& c) {
         c.mesh.device = ComputeDevice::Cuda;
         c.mesh.no_deterministic_mode = true;
         c.log.check_overlap = 2;
       }},
      {"--add-qkv-bias has no effect without --disable-bias-linear",
       [](C& c) { c.model.add_qkv_bias = true; }},
      {"--add-attention-out-bias has no effect without --disable-bias-linear",
       [](C& c) { c.model.add_attention_out_bias = true; }},
      {"--add-mlp-bias has no effect without --disable-bias-linear",
       [](C& c) {
         c.model.num_experts = 4;
         c.model.add_mlp_bias = true;
       }},
      {"--tf32 needs --device cuda", [](C& c) { c.precision.tf32 = true; }},
      {"--tf32 has no effect with --bf16, because it rounds the factors of f32 products",
       [](C& c) {
         c.mesh.device = ComputeDevice::Cuda;
         c.precision.tf32 = c.precision.bf16 = true;
       }},
      {"--enable-cuda-graph needs --device cuda", [](C& c) { c.mesh.enable_cuda_graph = true; }},
      {"--enable-cuda-graph is not possible with --tensor-model-parallel-size 2",
       [](C& c) {
         c.mesh.enable_cuda_graph = true, c.mesh.device = ComputeDevice::Cuda;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2;
       }},
      {"--fp8 needs --bf16", [](C& c) { c.precision.fp8 = true, c.mesh.device = ComputeDevice::Cuda; }},
      {"--fp8 needs --device cuda", [](C& c) { c.precision.fp8 = c.precision.bf16 = true; }},
      {"--fp8 is not possible with products of 19 rows of a sample (--seq-length)",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.mesh.device = ComputeDevice::Cuda;
         c.model.seq_length = 19;
       }},
      {"--fp8 is not possible with products of 8 rows of a sample (--seq-length) on each of 8 context ranks",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.mesh.device = ComputeDevice::Cuda;
         c.mesh.ranks = c.mesh.context_parallel_size = 8;
       }},
      {"--fp8 is not possible with --tiled-mlp 8, which cuts the 64 rows of a sample into tiles that"
       " are not multiples of 16: give a "
       "divisor of 4",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.mesh.device = ComputeDevice::Cuda;
         c.mesh.tiled_mlp = 8;
       }},
      {"--fp8 is not possible with products of 200 columns (--ffn-hidden-size)",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.mesh.device = ComputeDevice::Cuda;
         c.model.ffn_hidden_size = 200;
       }},
      {"--fp8 is not possible with products of 40 columns (--ffn-hidden-size, by default) on each of 8 tensor ranks",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.mesh.device = ComputeDevice::Cuda;
         c.model.swiglu = true, c.model.num_attention_heads = 8;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 8;
       }},
      {"--fp8-recipe blockwise has no effect without --fp8",
       [](C& c) { c.precision.fp8_recipe = Fp8Recipe::Blockwise, c.precision.bf16 = true; }},
      {"--fp8 is not possible with products of 64 rows of a sample (--seq-length): every extent must be a multiple of "
       "128, so that blocks with one scale (--fp8-recipe blockwise) do not depend on ranks",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.precision.fp8_recipe = Fp8Recipe::Blockwise;
       }},
      {"--fp8 is not possible with products of 128 rows of a sample (--seq-length) on each of 2 context ranks: every "
       "extent must be a multiple of 256, two runs of whole blocks, so that",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.precision.fp8_recipe = Fp8Recipe::Blockwise;
         c.model.seq_length = c.model.max_position_embeddings.emplace(256);
         c.mesh.ranks = c.mesh.context_parallel_size = 2;
       }},
      {"--fp8 is not possible with products of 64 columns (--ffn-hidden-size) on each of 2 tensor ranks: every "
       "extent must be a multiple of 128",
       [](C& c) {
         c.precision.fp8 = c.precision.bf16 = true, c.precision.fp8_recipe = Fp8Recipe::Blockwise;
         c.model.seq_length = c.model.max_position_embeddings.emplace(128);
         c.model.hidden_size = 256, c.model.ffn_hidden_size = 128;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2;
       }},
      {"--ffn-hidden-size 64, its default, is not divisible by "
       "--tensor-model-parallel-size 3: 63 and 66 are",
       [](C& c) {
         c.model.swiglu = true, c.model.hidden_size = 24, c.model.num_attention_heads = 3;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 3;
       }},
      {"--num-layers -1 is not possible", [](C& c) { c.model.num_layers = -1; }},
      {"--hidden-size 130 is not divisible by --num-attention-heads 4: 128 and 132 are",
       [](C& c) { c.model.hidden_size = 130; }},
      {"--hidden-size 3 is not divisible by --num-attention-heads 4: 4 is",
       [](C& c) { c.model.hidden_size = 3; }},
      {"--seq-length 64 is more than --max-position-embeddings 32",
       [](C& c) { c.model.max_position_embeddings = 32; }},
      {"--ffn-hidden-size 0", [](C& c) { c.model.ffn_hidden_size = 0; }},
      {"--num-query-groups 2 has no effect without --group-query-attention",
       [](C& c) { c.model.num_query_groups = 2; }},
      {"--num-query-groups 3 does not divide --num-attention-heads 4",
       [](C& c) { c.model.group_query_attention = true, c.model.num_query_groups = 3; }},
      {"--num-query-groups 0 is not possible",
       [](C& c) { c.model.group_query_attention = true, c.model.num_query_groups = 0; }},
      {"--rotary-base 500000 has no effect without --position-embedding-type rope",
       [](C& c) { c.model.rotary_base = 500000; }},
      {"--num-experts 4 is not possible with --model-type bert: leave it out",
       [](C& c) { c.model.model_type = ModelType::Bert, c.model.num_experts = 4; }},
      {"--norm-position output has no effect without --pre-norm",
       [](C& c) { c.model.model_type = ModelType::Bert, c.model.norm_position = NormPosition::Output; }},
      {"--no-first-norm has no effect without --pre-norm",
       [](C& c) { c.model.model_type = ModelType::Bert, c.model.no_first_norm = true; }},
      {"--parallel-residual one_norm has no effect without --pre-norm",
       [](C& c) {
         c.model.model_type = ModelType::Bert, c.model.parallel_residual = ParallelResidual::OneNorm;
       }},
      {"--no-first-norm is not possible with --norm-position output",
       [](C& c) { c.model.no_first_norm = true, c.model.norm_position = NormPosition::Output; }},
      {"--no-first-norm is not possible with --parallel-residual two_norms",
       [](C& c) { c.model.no_first_norm = true, c.model.parallel_residual = ParallelResidual::TwoNorms; }},
      {"--pre-norm has no effect with --model-type gpt", [](C& c) { c.model.pre_norm = true; }},
      {"--add-head-bias has no effect without --disable-bias-linear",
       [](C& c) { c.model.model_type = ModelType::Bert, c.model.add_head_bias = true; }},
      {"--disable-bias-norm has no effect with --normalization RMSNorm, which has no biases",
       [](C& c) { c.model.disable_bias_norm = true, c.model.normalization = Normalization::RmsNorm; }},
      {"--rope-long-factor 2 has no effect without --rope-type longrope",
       [](C& c) { c.model.rope_long_factor = {{2}}; }},
      {"--rope-short-factor has 1 numbers, but --rope-type longrope rotates 16 pairs of channels in each head",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope, c.model.rope_type = RopeType::LongRope;
         c.model.rope_short_factor = {{2}}, c.model.rope_long_factor.assign(16, {3});
       }},
      {"--use-rope-scaling is not possible with --rope-type longrope",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope, c.model.rope_type = RopeType::LongRope;
         c.model.use_rope_scaling = true;
         c.model.rope_short_factor.assign(16, {2}), c.model.rope_long_factor.assign(16, {3});
       }},
      {"--squared-relu is not possible with --swiglu: give one of them",
       [](C& c) { c.model.squared_relu = c.model.swiglu = true; }},
      {"--gelu erf has no effect with --squared-relu",
       [](C& c) { c.model.squared_relu = true, c.model.gelu = GeluKind::Erf; }},
      {"--untie-embeddings-and-output-weights is not possible with --model-type bert",
       [](C& c) {
         c.model.model_type = ModelType::Bert, c.model.untie_embeddings_and_output_weights = true;
       }},
      {"--eod-mask-loss has no effect with --model-type bert",
       [](C& c) { c.model.model_type = ModelType::Bert, c.data.eod_mask_loss = true; }},
      {"--reset-attention-mask has no effect with --model-type bert, whose samples are pairs of sentences",
       [](C& c) { c.model.model_type = ModelType::Bert, c.data.reset_attention_mask = true; }},
      {"--reset-position-ids has no effect with --model-type bert",
       [](C& c) { c.model.model_type = ModelType::Bert, c.data.reset_position_ids = true; }},
      {"--mask-prob 0 is not possible",
       [](C& c) { c.model.model_type = ModelType::Bert, c.data.mask_prob = 0; }},
      {"--bert-no-binary-head has no effect with --model-type gpt",
       [](C& c) { c.model.bert_no_binary_head = true; }},
      {"--num-tokentypes 1 has no effect with --model-type gpt", [](C& c) { c.model.num_tokentypes = 1; }},
      {"--position-embedding-offset 2 has no effect without --position-embedding-type learned_absolute",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.position_embedding_offset = 2;
       }},
      {"--whole-word-masking has no effect with --model-type gpt",
       [](C& c) { c.data.whole_word_masking = true; }},
      {"--lr-decay-power 2 has no effect without --lr-decay-style polynomial: give both, or neither",
       [](C& c) { c.lr.lr_decay_power = 2; }},
      {"--rotary-percent 0.5 has no effect without --position-embedding-type rope",
       [](C& c) { c.model.rotary_percent = 0.5; }},
      {"--use-rope-scaling has no effect", [](C& c) { c.model.use_rope_scaling = true; }},
      {"--beta-fast 16 has no effect without --rope-type yarn", [](C& c) { c.model.beta_fast = 16; }},
      {"--rope-type yarn has no effect without --position-embedding-type rope",
       [](C& c) { c.model.rope_type = RopeType::Yarn; }},
      {"--beta-fast 0.5 is less than --beta-slow 1",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.rope_type = RopeType::Yarn, c.model.beta_fast = 0.5;
       }},
      {"--rotary-seq-len-interpolation-factor 2 is not possible with --rope-type yarn, because each "
       "stretches rope in its own way",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.rope_type = RopeType::Yarn, c.model.rotary_seq_len_interpolation_factor = 2;
       }},
      {"--rope-scaling-factor 4 has no effect without --use-rope-scaling",
       [](C& c) { c.model.rope_scaling_factor = 4; }},
      {"--rope-scaling-original-positions 4 has no effect without --use-rope-scaling",
       [](C& c) { c.model.rope_scaling_original_positions = 4; }},
      {"--rope-scaling-high-freq-factor 4 is not above --rope-scaling-low-freq-factor 5",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.use_rope_scaling = true, c.model.rope_scaling_low_freq_factor = 5;
       }},
      {"--rope-no-truncate has no effect without --rope-type yarn",
       [](C& c) { c.model.rope_no_truncate = true; }},
      {"--mscale 2 has no effect with --rotary-attention-factor 2",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.rope_type = RopeType::Yarn, c.model.mscale = 2, c.model.rotary_attention_factor = 2;
       }},
      {"--rotary-percent 0 is not possible: it must be above 0", [](C& c) { c.model.rotary_percent = 0; }},
      {"rotates pairs of channels, but 3 of 4",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::Rope;
         c.model.kv_channels = 4, c.model.rotary_percent = 0.75;
       }},
      {"--vocab-size -5", [](C& c) { c.model.vocab_size = -5; }},
      {"--hidden-dropout 1 is not possible: it must be at least 0 and below 1",
       [](C& c) { c.model.hidden_dropout = 1; }},
      {"--attention-dropout -0.1", [](C& c) { c.model.attention_dropout = -0.1; }},
      {"--attention-dropout nan", [](C& c) { c.model.attention_dropout = kNan; }},
      {"--norm-epsilon 0", [](C& c) { c.model.norm_epsilon = 0; }},
      {"--ranks 4 differs from --data-parallel-size 2: give --ranks 2 or --data-parallel-size 4",
       [](C& c) { c.mesh.ranks = 4, c.mesh.data_parallel_size = 2; }},
      {"--ranks 0", [](C& c) { c.mesh.ranks = 0; }},
      {"--threads-per-rank 0", [](C& c) { c.mesh.threads_per_rank = 0; }},
      {"--distributed-timeout-minutes 0", [](C& c) { c.mesh.distributed_timeout_minutes = 0; }},
  };
  return kCases;
}

TEST(ConfigValidate, AcceptsValidConfigurations) {
  EXPECT_EQ(texts_of(problems(sound())), Words{});
  PretrainConfig config = sound();
  config.data.data_path = {"0.3", "a", "7", "b"};
  config.data.split = std::string("90, 10");
  config.eval.eval_interval = 10;
  config.lr.lr_warmup_fraction = 0.1;
  config.mesh.ranks = 4;
  config.batch.global_batch_size = 32;
  EXPECT_EQ(texts_of(problems(config)), Words{});
  for (const Words& paths : {Words{"a", "b", "c"}, {"a", "b"}, {"0", "a", "1", "b"}, {"5"}}) {
    config.data.data_path = paths;
    EXPECT_EQ(texts_of(problems(config)), Words{}) << testing::PrintToString(paths);
  }
}

// A context rank of a model that is not causal has one run of rows.
TEST(ConfigValidate, ScalesOfBlocksNeedWholeBlocksOfEachRun) {
  PretrainConfig config = sound();
  config.precision.fp8 = config.precision.bf16 = true, config.precision.fp8_recipe = Fp8Recipe::Blockwise;
  config.model.seq_length = config.model.max_position_embeddings.emplace(256);
  config.mesh.ranks = config.mesh.context_parallel_size = 2;
  const auto refuses = [&] {
    const Words texts = texts_of(problems(config));
    return std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
      return text.find("--fp8 is not possible") != std::string::npos;
    });
  };
  EXPECT_TRUE(refuses());
  config.model.model_type = ModelType::Bert;
  EXPECT_FALSE(refuses());
}

TEST(ConfigValidate, ReportsEachMistakeOnceWithARemedy) { expect_reported(cases()); }

TEST(ConfigValidate, ReportsAllMistakesTogether) {
  PretrainConfig config = sound();
  config.model.hidden_size = 130;
  config.lr.min_lr = 1;
  config.optimizer.adam_eps = kNan;
  EXPECT_EQ(problems(config).size(), 3u);
  const std::string text = refusal([&] { resolve(config); });
  expect_contains(text, "3 problems:\n  - ");
}

TEST(ConfigValidate, SurvivesExtremeValues) {
  for (const int64_t extreme : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    PretrainConfig config = sound();
    config.model.hidden_size = config.model.num_attention_heads = config.model.seq_length = extreme;
    config.batch.micro_batch_size = config.batch.train_iters = extreme;
    config.batch.global_batch_size = config.lr.lr_decay_iters = extreme;
    config.lr.lr_warmup_iters = extreme;
    config.mesh.ranks = config.mesh.tensor_model_parallel_size = config.mesh.pipeline_model_parallel_size =
        static_cast<int>(extreme >> 32);
    EXPECT_GE(problems(config).size(), 9u);
  }
}

TEST(ConfigValidate, FillsInDerivedValuesAndChangesNoOther) {
  PretrainConfig config = sound();
  config.mesh.ranks = 2;
  const PretrainConfig full = resolve(config);
  EXPECT_EQ(full.model.ffn_hidden_size, 512);
  PretrainConfig gated = sound();
  gated.model.swiglu = true;
  EXPECT_EQ(resolve(gated).model.ffn_hidden_size, 320);  // 341 rounded down to whole 64s
  EXPECT_EQ(full.model.max_position_embeddings, 64);
  EXPECT_EQ(full.mesh.data_parallel_size, 2);
  EXPECT_EQ(full.batch.global_batch_size, 8);
  EXPECT_EQ(full.lr.lr_decay_iters, 100);
  EXPECT_FALSE(full.mesh.threads_per_rank || full.model.vocab_size || full.data.tokenizer_type);

  config.model.ffn_hidden_size = 100;
  config.model.max_position_embeddings = 1024;
  config.batch.global_batch_size = 16;
  config.lr.lr_decay_iters = 50;
  const PretrainConfig kept = resolve(config);
  EXPECT_EQ(kept.model.ffn_hidden_size, 100);
  EXPECT_EQ(kept.model.max_position_embeddings, 1024);
  EXPECT_EQ(kept.batch.global_batch_size, 16);
  EXPECT_EQ(kept.lr.lr_decay_iters, 50);
}

}  // namespace
}  // namespace trifold
