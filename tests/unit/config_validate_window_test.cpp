// The rules of windows, sinks and layers without rope, and the kinds of layers that follow from them.
#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "config/fields/adapter_targets.h"
#include "config/fields/layer_kinds.h"
#include "support/files.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

PretrainConfig with_window() {
  PretrainConfig config;
  config.model.num_layers = 6;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 64;
  config.model.position_embedding_type = PositionEmbedding::Rope;
  config.model.window_size = WindowSize{15, 0};
  config.batch.micro_batch_size = 2;
  config.batch.train_iters = 400;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  return config;
}

TEST(WindowSize, IsTwoNumbers) {
  EXPECT_EQ(WindowSize::parse("127,0"), (WindowSize{127, 0}));
  EXPECT_EQ(WindowSize::parse("(-1,5)"), (WindowSize{-1, 5}));
  EXPECT_EQ(WindowSize::parse("-1,-1").text(), "-1,-1");
  for (const char* text : {"", "5", "5,", "5,-2", "a,b", "1,2,3", "(1,2"})
    EXPECT_NE(test::error_of([&] { WindowSize::parse(text); }).find("give two numbers"), std::string::npos)
        << text;
}

TEST(WindowRules, OneMessageForEachMistake) {
  using C = PretrainConfig;
  EXPECT_TRUE(problems(with_window()).empty());
  struct Case {
    const char* expected;
    void (*change)(C&);
  };
  const Case cases[] = {
      {"--window-size 15,3 has later positions, which a model that predicts the next token cannot see: give 15,0",
       [](C& c) { c.model.window_size->right = 3; }},
      {"--window-attn-skip-freq 2 has no effect without --window-size",
       [](C& c) { c.model.window_size.reset(), c.model.window_attn_skip_freq = "2"; }},
      {"--window-attn-skip-freq 1: no layer has a window", [](C& c) { c.model.window_attn_skip_freq = "1"; }},
      {"--window-attn-skip-freq '[1,0]' has 2 entries for 6 layers",
       [](C& c) { c.model.window_attn_skip_freq = "[1,0]"; }},
      {"--no-rope-freq 7: all layers rotate", [](C& c) { c.model.no_rope_freq = "7"; }},
      {"--no-rope-freq 2 has no effect without --position-embedding-type rope",
       [](C& c) { c.model.position_embedding_type = PositionEmbedding::None, c.model.no_rope_freq = "2"; }},
      {"--attn-logit-softcapping 0 is not possible", [](C& c) { c.model.attn_logit_softcapping = 0; }}};
  for (const auto& [expected, change] : cases) {
    PretrainConfig config = with_window();
    change(config);
    const std::vector<Problem> found = problems(config);
    ASSERT_EQ(found.size(), 1U) << expected;
    EXPECT_NE(text_of(found[0]).find(expected), std::string::npos) << text_of(found[0]);
  }
}

TEST(WindowRules, NoWindowIsOneThatCoversAll) {
  PretrainConfig config = with_window();
  config.model.window_size = WindowSize{};
  EXPECT_TRUE(problems(config).empty());
  EXPECT_EQ(layer_kinds(config.model).kinds.size(), 1U);
}

// Every third layer sees all positions, and every second one does not rotate.
TEST(LayerKinds, FollowFromPatterns) {
  ModelConfig model = with_window().model;
  model.window_attn_skip_freq = "3";
  model.window_rotary_base = 500;
  model.no_rope_freq = "2";
  const LayerKinds layers = layer_kinds(model);
  ASSERT_EQ(layers.kinds.size(), 4U);
  const auto of = [&](size_t layer) -> const LayerKind& { return layers.kinds[layers.of_layer[layer]]; };
  EXPECT_EQ(of(0).name, "layer with a window of 15,0");
  EXPECT_EQ(of(0).model.rotary_base, 500);
  EXPECT_EQ(of(1).name, "layer with a window of 15,0, without rope");
  EXPECT_EQ(of(1).model.position_embedding_type, PositionEmbedding::None);
  EXPECT_EQ(of(2).name, "layer");
  EXPECT_FALSE(of(2).model.window_size);
  EXPECT_EQ(of(2).model.rotary_base, 10000);
  EXPECT_EQ(of(5).name, "layer without rope");
  EXPECT_EQ(layers.of_layer[3], layers.of_layer[1]);
  EXPECT_EQ(layers.of_layer[4], layers.of_layer[0]);
}

// The first layer's attention has no norm: a kind of its own.
TEST(LayerKinds, TheFirstLayerMayLackANorm) {
  ModelConfig model = with_window().model;
  model.window_attn_skip_freq = "[0,1,1,0,1,1]";
  model.no_first_norm = true;
  const LayerKinds layers = layer_kinds(model);
  ASSERT_EQ(layers.kinds.size(), 3U);
  const LayerKind& first = layers.kinds[layers.of_layer[0]];
  EXPECT_EQ(first.name, "layer without a norm before attention");
  EXPECT_TRUE(first.model.no_first_norm);
  EXPECT_EQ(layers.kinds[layers.of_layer[3]].name, "layer");
  EXPECT_FALSE(layers.kinds[layers.of_layer[3]].model.no_first_norm);
  EXPECT_EQ(layers.of_layer[1], layers.of_layer[5]);
}

TEST(LayerKinds, LayersWithOtherAdaptersAreOfAnotherKind) {
  ModelConfig model = with_window().model;
  model.window_size.reset();
  model.adapters.lora_rank = 4;
  EXPECT_EQ(layer_kinds(model).kinds.size(), 1U);
  model.adapters.lora_targets = {"query", "mlp.down"};
  EXPECT_EQ(layer_kinds(model).kinds.size(), 1U);
  EXPECT_EQ(layer_kinds(model).kinds[0].name, "layer");

  model.adapters.lora_targets = {"block.[12].attention.query"};
  const LayerKinds two = layer_kinds(model);
  ASSERT_EQ(two.kinds.size(), 2U);
  const auto name_of = [](const LayerKinds& layers, size_t layer) {
    return layers.kinds[layers.of_layer[layer]].name;
  };
  EXPECT_EQ(name_of(two, 0), "layer without adapters");
  EXPECT_EQ(name_of(two, 1), "layer with adapters");
  EXPECT_EQ(two.of_layer[1], two.of_layer[2]);
  EXPECT_EQ(two.of_layer[0], two.of_layer[3]);
  // As models of their own, the layers of a kind have its adapters, whatever their numbers.
  const auto modules_of = [](ModelConfig kind) {
    kind.num_layers = 1;
    std::vector<std::string> modules;
    for (const LinearModules& linear : linear_modules(kind))
      for (const std::string& module : adapted_modules(kind.adapters, linear)) modules.push_back(module);
    return modules;
  };
  EXPECT_EQ(modules_of(two.kinds[two.of_layer[0]].model), std::vector<std::string>());
  EXPECT_EQ(modules_of(two.kinds[two.of_layer[1]].model),
            std::vector<std::string>{"block.0.attention.query"});

  model.adapters.lora_targets = {"block.0.attention.query", "block.1.mlp.*"};
  const LayerKinds three = layer_kinds(model);
  ASSERT_EQ(three.kinds.size(), 3U);
  EXPECT_EQ(name_of(three, 0), "layer with adapters of attention.query");
  EXPECT_EQ(name_of(three, 1), "layer with adapters of mlp.up and mlp.down");
  EXPECT_EQ(name_of(three, 2), "layer without adapters");

  // Layers that differ anyway have the adapters that their modules allow.
  model.adapters.lora_targets = {"*"};
  model.num_experts = 4;
  model.disable_bias_linear = true;
  model.moe_layer_freq = "2";
  const LayerKinds mixed = layer_kinds(model);
  ASSERT_EQ(mixed.kinds.size(), 2U);
  EXPECT_EQ(name_of(mixed, 0), "layer");
  EXPECT_EQ(name_of(mixed, 1), "layer without experts");
}

TEST(RopeFactor, IsANumberAboveZero) {
  EXPECT_EQ(RopeFactor::parse("1.0800000429153442").factor, 1.0800000429153442);
  EXPECT_EQ(RopeFactor::parse("1.0800000429153442").text(), "1.0800000429153442");
  for (const char* text : {"", "0", "-1", "nan", "inf", "1,2", "1e7"})
    EXPECT_NE(test::error_of([&] { RopeFactor::parse(text); }).find("give numbers above 0"),
              std::string::npos)
        << text;
}

}  // namespace
}  // namespace trifold
