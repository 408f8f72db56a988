// Options of low-rank adapters: the layers that targets name, and what is refused.
#include <gtest/gtest.h>

#include "config/commands/json.h"
#include "config/commands/validate.h"
#include "config/fields/adapter_targets.h"

namespace trifold {
namespace {

ModelConfig llama_with_adapters(std::vector<std::string> targets = {}) {
  ModelConfig model;
  model.num_layers = 2;
  model.hidden_size = 32;
  model.num_attention_heads = 4;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.swiglu = true;
  model.seq_length = 8;
  model.vocab_size = 50;
  model.adapters.lora_rank = 4;
  model.adapters.lora_targets = std::move(targets);
  return model;
}

std::vector<std::string> adapted(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const LinearModules& layer : linear_modules(model))
    for (const std::string& name : adapted_modules(model.adapters, layer)) names.push_back(name);
  return names;
}

using Modules = std::vector<std::string>;

TEST(AdapterTargets, AreAllPartsOfAllLayersByDefault) {
  const Modules names = adapted(llama_with_adapters());
  EXPECT_EQ(names.size(), 14U);
  EXPECT_EQ(Modules(names.begin(), names.begin() + 7),
            (Modules{"block.0.attention.query", "block.0.attention.key", "block.0.attention.value",
                     "block.0.attention.out", "block.0.mlp.gate", "block.0.mlp.up", "block.0.mlp.down"}));
}

TEST(AdapterTargets, HaveNamesAndPatterns) {
  EXPECT_EQ(adapted(llama_with_adapters({"q_proj"})),
            (Modules{"block.0.attention.query", "block.1.attention.query"}));
  EXPECT_EQ(adapted(llama_with_adapters({"block.1.mlp.*"})),
            (Modules{"block.1.mlp.gate", "block.1.mlp.up", "block.1.mlp.down"}));
  EXPECT_EQ(adapted(llama_with_adapters({"gate_up", "c_proj"})),
            (Modules{"block.0.attention.out", "block.0.mlp.gate_up", "block.0.mlp.down",
                     "block.1.attention.out", "block.1.mlp.gate_up", "block.1.mlp.down"}));
  EXPECT_EQ(adapted(llama_with_adapters({"up"})), (Modules{"block.0.mlp.up", "block.1.mlp.up"}));
  ModelConfig packed = llama_with_adapters({"c_attn"});
  packed.group_query_attention = false;
  EXPECT_EQ(adapted(packed), (Modules{"block.0.attention.qkv", "block.1.attention.qkv"}));
}

TEST(AdapterTargets, NameTheProductsOfLatentAttention) {
  ModelConfig model = llama_with_adapters();
  model.group_query_attention = false;
  model.multi_latent_attention = true;
  const Modules names = adapted(model);
  EXPECT_EQ(Modules(names.begin(), names.begin() + 4),
            (Modules{"block.0.attention.query", "block.0.attention.key_value_down",
                     "block.0.attention.key_value_up", "block.0.attention.out"}));
  model.q_lora_rank = 8;
  model.adapters.lora_targets = {"q_a_proj", "q_b_proj", "kv_b_proj", "q_proj"};
  EXPECT_EQ(adapted(model), (Modules{"block.0.attention.query_down", "block.0.attention.query_up",
                                     "block.0.attention.key_value_up", "block.1.attention.query_down",
                                     "block.1.attention.query_up", "block.1.attention.key_value_up"}));
}

TEST(AdapterScale, FollowsTheRank) {
  AdapterConfig adapters;
  adapters.lora_rank = 16;
  EXPECT_EQ(adapter_scale(adapters), 1);
  adapters.lora_alpha = 32;
  EXPECT_EQ(adapter_scale(adapters), 2);
  adapters.lora_scaling = LoraScaling::RankStabilized;
  EXPECT_EQ(adapter_scale(adapters), 8);
}

std::string refused(const ModelConfig& model, const std::optional<std::string>& load = "model") {
  PretrainConfig config;
  config.model = model;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = 1;
  config.lr.lr = 1e-3;
  config.data.mock_data = true;
  config.checkpoint.load = load;
  std::string all;
  for (const Problem& problem : problems(config)) all += text_of(problem) + "\n";
  return all;
}

TEST(AdapterOptions, OfTheFirstValuesNeedAdapters) {
  ModelConfig model = llama_with_adapters();
  model.adapters.lora_init = LoraInit::Gaussian;
  EXPECT_EQ(refused(model), "");
  model.adapters.lora_rank.reset();
  EXPECT_NE(refused(model).find("--lora-init gaussian has no effect"), std::string::npos);
}

TEST(AdapterOptions, AreCheckedBeforeARun) {
  EXPECT_EQ(refused(llama_with_adapters()), "");
  EXPECT_NE(refused(llama_with_adapters(), {}).find("--lora-rank 4 freezes the weights of a trained model"),
            std::string::npos);
  EXPECT_NE(refused(llama_with_adapters({"qkv"})).find("--lora-targets qkv names no linear layer"),
            std::string::npos);
  EXPECT_NE(
      refused(llama_with_adapters({"gate", "gate_up"})).find("name the same weight, block.0.mlp.gate_up"),
      std::string::npos);
  ModelConfig model = llama_with_adapters();
  model.adapters.dora = true;
  model.adapters.lora_dropout = 0.1;
  EXPECT_EQ(refused(model), "");
  model = llama_with_adapters();
  model.adapters.lora_rank.reset();
  model.adapters.lora_alpha = 3;
  EXPECT_NE(refused(model).find("--lora-alpha 3 has no effect"), std::string::npos);
  model = llama_with_adapters();
  model.adapters.quantize_base = BaseWeights::Nf4;
  EXPECT_EQ(refused(model), "");
  model.adapters.lora_rank.reset();
  EXPECT_NE(refused(model).find("--quantize-base nf4 has no effect"), std::string::npos);
}

TEST(AdapterOptions, ArePartOfAModelsDescription) {
  ModelConfig model = llama_with_adapters({"q_proj", "block.0.mlp.*"});
  model.adapters.lora_scaling = LoraScaling::RankStabilized;
  model.adapters.quantize_base = BaseWeights::Int8;
  const ModelConfig read = model_from_json(to_json(model));
  EXPECT_EQ(read.adapters.quantize_base, BaseWeights::Int8);
  EXPECT_EQ(read.adapters.lora_targets, model.adapters.lora_targets);
  EXPECT_EQ(read.adapters.lora_rank, 4);
  EXPECT_EQ(read.adapters.lora_scaling, LoraScaling::RankStabilized);
}

}  // namespace
}  // namespace trifold
