#include "config/commands/json.h"

#include <gtest/gtest.h>

#include "config/commands/option_tables.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

using nlohmann::json;

ModelConfig model() {
  ModelConfig model;
  model.num_layers = 2;
  model.hidden_size = 64;
  model.num_attention_heads = 4;
  model.seq_length = 32;
  model.vocab_size = 257;
  model.norm_epsilon = 1.0 / 3;
  return model;
}

TEST(ConfigJson, ModelsComeBackExactly) {
  const json written = json::parse(to_json(model()).dump());
  EXPECT_EQ(written["num_layers"], 2);
  EXPECT_TRUE(written["ffn_hidden_size"].is_null());
  const ModelConfig back = model_from_json(written);
  EXPECT_EQ(back.norm_epsilon, 1.0 / 3);
  EXPECT_EQ(back.vocab_size, 257);
  EXPECT_FALSE(back.ffn_hidden_size);
  EXPECT_EQ(to_json(back), written);
  EXPECT_EQ(written.size(), 119u);  // a new field of ModelConfig belongs here
}

TEST(ConfigJson, RefusesOtherObjects) {
  const auto with = [](const char* key, json value) {
    json object = to_json(model());
    object[key] = std::move(value);
    return refusal([&] { model_from_json(object); });
  };
  expect_contains(with("hidden_size", "64"), "model: 'hidden_size': a JSON string is not allowed here");
  expect_contains(with("hidden_size", 1.5), "'1.5' is not a whole number");
  expect_contains(with("hidden_size", -64), "must be from 1");
  expect_contains(with("hidden_size", json()), "'hidden_size': --hidden-size needs a value");
  expect_contains(with("hidden_size", json::array({1, 2})), "a JSON array is not allowed here");
  expect_contains(with("num_gadgets", 8), "'num_gadgets' is not known");
  expect_contains(with("hidden-size", 64), "'hidden-size' is not known");
  json missing = to_json(model());
  missing.erase("num_layers");
  expect_contains(refusal([&] { model_from_json(missing); }), "model: 'num_layers' is missing");
  expect_contains(refusal([] { model_from_json(json::array()); }), "not a JSON array");
}

TEST(ConfigJson, HoldsEveryOptionOfPretrain) {
  PretrainConfig config = pretrain({"--lr-decay-style", "inverse-square-root", "--save", "d"});
  const json written = to_json(config);
  EXPECT_EQ(written.size(), options_of(config).options().size());
  EXPECT_EQ(written["lr_decay_style"], "inverse-square-root");
  EXPECT_EQ(written["data_path"], json::array({"t.txt"}));
  EXPECT_EQ(written["save"], "d");
  EXPECT_EQ(written["f64"], false);
  EXPECT_EQ(written["seed"], 1234);
  EXPECT_TRUE(written["load"].is_null());
}

TEST(ConfigJson, TokenizersComeBack) {
  DataConfig data;
  data.tokenizer_type = TokenizerType::SentencePiece;
  data.tokenizer_model = "12";  // a name, though it looks like a number
  DataConfig back;
  back.split = "1,0,0";
  tokenizer_from_json(tokenizer_to_json(data), back);
  EXPECT_EQ(back.tokenizer_type, TokenizerType::SentencePiece);
  EXPECT_EQ(back.tokenizer_model, "12");
  EXPECT_EQ(back.split, "1,0,0");
  tokenizer_from_json(tokenizer_to_json(DataConfig()), back);
  EXPECT_FALSE(back.tokenizer_type || back.tokenizer_model);
  expect_contains(refusal([&] {
                    tokenizer_from_json(json{{"tokenizer_type", 3}, {"tokenizer_model", {}}}, back);
                  }),
                  "tokenizer: 'tokenizer_type': a JSON number is not allowed here");
}

TEST(ConfigJson, ARecommenderInheritsOptionsThatAreNotGiven) {
  RecommendConfig stored;
  stored.model.embedding_dim = 8;
  stored.model.bottom_mlp = {32, 8};
  stored.model.interaction = InteractionKind::Fm;
  stored.model.wide = true;
  stored.model.dropout = 0.25;
  stored.training.optimizer = OptimizerKind::Adam;
  stored.training.embedding_optimizer = TableOptimizer::RowwiseAdagrad;
  stored.precision.bf16 = true;
  stored.lr.lr = 0.5;
  const json written = to_json(stored);
  RecommendConfig asked;
  asked.model.dropout = 0.5;              // not its default: given
  asked.given = {"interaction", "seed"};  // the first with its default
  inherit_model(written, asked);
  EXPECT_EQ(asked.model.embedding_dim, 8);
  EXPECT_EQ(asked.model.bottom_mlp.text(), "32-8");
  EXPECT_TRUE(asked.model.wide);
  EXPECT_EQ(asked.training.optimizer, OptimizerKind::Adam);
  EXPECT_EQ(asked.training.embedding_optimizer, TableOptimizer::RowwiseAdagrad);
  EXPECT_EQ(asked.model.interaction, InteractionKind::Dot);
  EXPECT_EQ(asked.model.dropout, 0.5);
  EXPECT_FALSE(asked.precision.bf16) << "a run may round otherwise than the one before";
  EXPECT_EQ(asked.lr.lr, RecommendConfig().lr.lr);
  json damaged = written;
  damaged["embedding_dim"] = -1;
  EXPECT_THROW(inherit_model(damaged, asked), Error);
}

TEST(ConfigJson, ListsDifferencesFieldByField) {
  ModelConfig other = model();
  EXPECT_TRUE(model_differences(model(), other).empty());
  other.hidden_size = 128;
  other.vocab_size.reset();
  EXPECT_EQ(model_differences(model(), other),
            (Words{"hidden_size is 64 in the checkpoint, 128 asked for",
                   "vocab_size is 257 in the checkpoint, null asked for"}));
}

}  // namespace
}  // namespace trifold
