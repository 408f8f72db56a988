// The rules of multi-head latent attention, and the widths that follow from its options.
#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

PretrainConfig latent() {
  PretrainConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 100;  // which 3 heads need not divide
  config.model.num_attention_heads = 3;
  config.model.seq_length = 64;
  config.model.multi_latent_attention = true;
  config.model.position_embedding_type = PositionEmbedding::Rope;
  config.model.disable_bias_linear = true;
  config.model.q_lora_rank = 24;
  config.batch.micro_batch_size = 2;
  config.batch.train_iters = 400;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  return config;
}

TEST(LatentRules, AcceptHeadsOfOtherWidths) {
  EXPECT_TRUE(problems(latent()).empty());
  PretrainConfig config = latent();
  EXPECT_EQ(head_width(config.model), 192);
  EXPECT_EQ(key_width(config.model), 192);
  EXPECT_EQ(value_width(config.model), 128);
  EXPECT_EQ(rotated_width(config.model), 64);
  config.model.v_head_dim = 200;
  EXPECT_EQ(head_width(config.model), 200);
  config.model.q_lora_rank.reset();
  config.model.qk_layernorm = true;
  config.mesh.ranks = config.mesh.context_parallel_size = 2;
  EXPECT_TRUE(problems(config).empty());
}

TEST(LatentRules, OneMessageForEachMistake) {
  using C = PretrainConfig;
  struct Case {
    const char* expected;
    void (*change)(C&);
  };
  const Case cases[] = {
      {"--q-lora-rank 24 has no effect without --multi-latent-attention: give both",
       [](C& c) { c.model.num_attention_heads = 4, c.model.multi_latent_attention = false; }},
      {"--v-head-dim 64 has no effect without --multi-latent-attention: give both",
       [](C& c) {
         c.model.num_attention_heads = 4, c.model.multi_latent_attention = false, c.model.q_lora_rank.reset();
         c.model.v_head_dim = 64;
       }},
      {"--kv-channels 64 is not possible with --multi-latent-attention: leave it out, because every head",
       [](C& c) { c.model.kv_channels = 64; }},
      {"--group-query-attention is not possible with --multi-latent-attention",
       [](C& c) { c.model.group_query_attention = true; }},
      {"--rotary-percent 0.5 is not possible with --multi-latent-attention",
       [](C& c) { c.model.rotary_percent = 0.5; }},
      {"--multi-latent-attention needs --position-embedding-type rope",
       [](C& c) { c.model.position_embedding_type = PositionEmbedding::LearnedAbsolute; }},
      {"--multi-latent-attention needs --disable-bias-linear, because its projections have no biases",
       [](C& c) { c.model.disable_bias_linear = false; }},
      {"--add-qkv-bias is not possible with --multi-latent-attention",
       [](C& c) { c.model.add_qkv_bias = true; }},
      {"--latent-norm-epsilon 1e-06 has no effect without --qk-layernorm",
       [](C& c) { c.model.qk_layernorm = false, c.model.latent_norm_epsilon = 1e-6; }},
      {"--qk-pos-emb-head-dim 7 is not an even number from 2 to 1024",
       [](C& c) { c.model.qk_pos_emb_head_dim = 7; }},
      {"--qk-pos-emb-head-dim 2000 is not an even number from 2 to 1024",
       [](C& c) { c.model.qk_pos_emb_head_dim = 2000; }},
      {"--kv-lora-rank 0", [](C& c) { c.model.kv_lora_rank = 0; }},
      {"--num-attention-heads 3 is not divisible by --tensor-model-parallel-size 2",
       [](C& c) { c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2; }},
      {"--multi-latent-attention is not possible with --model-type bert",
       [](C& c) {
         c.model.position_embedding_type = PositionEmbedding::LearnedAbsolute;
         c.model.model_type = ModelType::Bert;
       }},
  };
  for (const Case& c : cases) {
    PretrainConfig config = latent();
    c.change(config);
    const std::vector<Problem> found = problems(config);
    EXPECT_GE(found.size(), 1U) << c.expected;
    EXPECT_TRUE(
        std::any_of(found.begin(), found.end(),
                    [&](const Problem& p) { return text_of(p).find(c.expected) != std::string::npos; }))
        << c.expected << "\n"
        << (found.empty() ? "" : text_of(found.front()));
    expect_whole(config);
  }
}

TEST(LatentRules, ProductsAreNotIn8Bits) {
  PretrainConfig config = latent();
  config.precision.fp8 = config.precision.bf16 = true;
  config.mesh.device = ComputeDevice::Cuda;
  const std::vector<Problem> found = problems(config);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Problem& p) {
    return text_of(p).find("--fp8 is not possible with --multi-latent-attention") != std::string::npos;
  }));
}

}  // namespace
}  // namespace trifold
