// Rotary angles against golden values, which a script computed from the formulas as the papers' authors write
// them (over dims, not pairs).
#include "models/rotary_frequencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/error.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {
namespace {

using nlohmann::json;

ModelConfig rope(int64_t head, double base) {
  ModelConfig model;
  model.num_layers = 1;
  model.num_attention_heads = 2;
  model.hidden_size = 2 * head;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.rotary_base = base;
  return model;
}

ModelConfig yarn(int64_t head, double base, int64_t positions, double factor) {
  ModelConfig model = rope(head, base);
  model.rope_type = RopeType::Yarn;
  model.original_max_position_embeddings = positions;
  model.rotary_scaling_factor = factor;
  return model;
}

void expect_relative(const std::vector<double>& values, const std::vector<double>& golden) {
  ASSERT_EQ(values.size(), golden.size());
  for (size_t i = 0; i < golden.size(); ++i) EXPECT_NEAR(values[i], golden[i], 1e-14 * golden[i]) << i;
}

TEST(RotaryFrequencies, LinearDividesEveryAngle) {
  ModelConfig model = rope(8, 10000);
  expect_relative(rotary_frequencies(model), {1, 0.1, 0.01, 0.001});
  model.rotary_seq_len_interpolation_factor = 4;
  expect_relative(rotary_frequencies(model), {0.25, 0.025, 0.0025, 0.00025});
  EXPECT_EQ(rotary_score_scale(model), 1);
}

TEST(RotaryFrequencies, YarnKeepsHighFrequenciesAndBlendsMiddleOnes) {
  expect_relative(
      rotary_frequencies(yarn(32, 10000, 256, 4)),
      {1, 0.50209046891995457, 0.24846467329894412, 0.12066895996692689, 0.057142857142857148,
       0.026108704383837632, 0.011293848786315641, 0.0044456985250973073, 0.0025000000000000001,
       0.0014058533129758727, 0.00079056941504209474, 0.00044456985250973074, 0.00025000000000000001,
       0.00014058533129758727, 7.9056941504209485e-05, 4.4456985250973067e-05});
  expect_relative(
      rotary_frequencies(yarn(16, 500000, 4096, 16)),
      {1, 0.19392274474868576, 0.025854146264968954, 0.0027347492764564158, 8.8388347648318439e-05,
       1.7140510979762956e-05, 3.3239349355906181e-06, 6.4458658607577872e-07});
}

TEST(RotaryFrequencies, YarnSharpensAttention) {
  EXPECT_NEAR(rotary_score_scale(yarn(32, 10000, 256, 4)), 1.2964769927807063, 1e-15);
  ModelConfig model = yarn(32, 10000, 4096, 40);
  model.mscale = 0.707;
  model.mscale_all_dim = 1.5;
  EXPECT_NEAR(rotary_score_scale(model), 0.6588195378069319, 1e-15);
  model.rotary_scaling_factor = 1;
  EXPECT_EQ(rotary_score_scale(model), 1);
  EXPECT_EQ(rotary_frequencies(model), rotary_frequencies(rope(32, 10000)));
}

// As transformers' HunYuan has it: the factor is of the rotation, and the norms behind it undo it.
TEST(RotaryFrequencies, NormsBehindTheRotationUndoItsFactor) {
  ModelConfig model = yarn(32, 10000, 256, 4);
  model.qk_layernorm = true;
  EXPECT_NEAR(rotary_score_scale(model), 1.2964769927807063, 1e-15);
  EXPECT_EQ(rotary_scale(model), 1);
  model.qk_layernorm_after_rope = true;
  EXPECT_EQ(rotary_score_scale(model), 1);
  EXPECT_NEAR(rotary_scale(model), std::sqrt(1.2964769927807063), 1e-15);
}

// As transformers' DeepseekV3Attention has it: all scores times m(mscale_all_dim)^2, and the rotated part of queries
// and keys times m(mscale) / m(mscale_all_dim) each.
TEST(RotaryFrequencies, YarnSharpensLatentAttentionInTwoParts) {
  ModelConfig model = yarn(32, 10000, 4096, 40);
  model.multi_latent_attention = true;
  model.mscale = 0.707;
  model.mscale_all_dim = 1.5;
  const double all = 0.1 * 1.5 * std::log(40.0) + 1, rotated = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_NEAR(rotary_score_scale(model), all * all, 1e-14);
  EXPECT_NEAR(rotary_key_scale(model), rotated * rotated / (all * all), 1e-14);
  model.mscale = model.mscale_all_dim = 1;
  EXPECT_EQ(rotary_key_scale(model), 1);
  model.qk_pos_emb_head_dim = 8;
  EXPECT_EQ(rotary_frequencies(model).size(), 4U);
  model.rope_type = RopeType::Rope;
  EXPECT_EQ(rotary_score_scale(model), 1);
}

// As transformers' _compute_longrope_parameters has it: which factors follows from the length, the scale of queries and
// keys does not.
TEST(RotaryFrequencies, LongRopeHasFactorsForShortAndForLongSamples) {
  ModelConfig model = rope(8, 10000);
  model.rope_type = RopeType::LongRope;
  model.original_max_position_embeddings = 4096;
  model.rotary_scaling_factor = 32;
  model.rope_short_factor = {{1}, {1.25}, {2}, {4}};
  model.rope_long_factor = {{2}, {4}, {8}, {16}};
  model.seq_length = 4096;
  expect_relative(rotary_frequencies(model), {1, 0.08, 0.005, 0.00025});
  model.seq_length = 4097;
  expect_relative(rotary_frequencies(model), {0.5, 0.025, 0.00125, 0.0000625});
  const double squared = 1 + std::log(32.0) / std::log(4096.0);  // 1.4166...
  EXPECT_NEAR(rotary_score_scale(model), 17.0 / 12, 1e-14);
  EXPECT_NEAR(rotary_score_scale(model), squared, 1e-14);
  EXPECT_EQ(rotary_scale(model), 1);
  model.rotary_attention_factor = 1.5;
  EXPECT_EQ(rotary_score_scale(model), 2.25);
  model.rotary_percent = 0.5;  // the rest of a head is not scaled
  model.rope_long_factor = {{2}, {4}};
  EXPECT_EQ(rotary_score_scale(model), 1);
  EXPECT_EQ(rotary_scale(model), 1.5);
  model.rotary_attention_factor.reset();
  model.rotary_scaling_factor = 1;
  EXPECT_EQ(rotary_scale(model), 1);
}

// As a file would give it.
ModelConfig read_again(const nlohmann::json& config) {
  return from_hugging_face(nlohmann::json::parse(config.dump()), "here");
}

ModelConfig read_llama(const nlohmann::json& scaling) {
  return read_again({{"model_type", "llama"},
                     {"num_hidden_layers", 2},
                     {"hidden_size", 32},
                     {"num_attention_heads", 4},
                     {"intermediate_size", 40},
                     {"max_position_embeddings", 64},
                     {"vocab_size", 61},
                     {"rope_theta", 50000.0},
                     {"rope_scaling", scaling}});
}

TEST(RotaryFrequencies, AreTheSameThroughHuggingFacesConfiguration) {
  ModelConfig linear = read_llama({{"rope_type", "linear"}, {"factor", 2.5}});
  EXPECT_EQ(linear.rotary_seq_len_interpolation_factor, 2.5);
  ModelConfig wide = read_llama(
      {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}, {"beta_fast", 16}});
  EXPECT_EQ(wide.rope_type, RopeType::Yarn);
  EXPECT_EQ(wide.rotary_scaling_factor, 4);
  EXPECT_EQ(wide.original_max_position_embeddings, 16);
  EXPECT_EQ(wide.beta_fast, 16);
  EXPECT_NEAR(rotary_score_scale(wide), 1.2964769927807063, 1e-15);
  ModelConfig plain = read_llama({{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.0}});
  EXPECT_EQ(plain.original_max_position_embeddings, 64);
  EXPECT_EQ(rotary_score_scale(plain), 1);
  for (const ModelConfig& model : {linear, wide, plain}) {
    const ModelConfig again = read_again(to_hugging_face(model, family_for(model)));
    EXPECT_EQ(rotary_frequencies(again), rotary_frequencies(model));
    EXPECT_NEAR(rotary_score_scale(again), rotary_score_scale(model), 1e-12);
  }
  EXPECT_THROW(read_llama({{"rope_type", "dynamic"}, {"factor", 4.0}}), Error);
}

// The golden values are those of transformers 5.24 (ROPE_INIT_FUNCTIONS), in f64.
TEST(RotaryFrequencies, ScaleByTurnsInAnyContext) {
  const ModelConfig model = read_llama({{"rope_type", "llama3"},
                                        {"factor", 4.0},
                                        {"low_freq_factor", 1.0},
                                        {"high_freq_factor", 3.0},
                                        {"original_max_position_embeddings", 32}});
  EXPECT_EQ(model.rope_scaling_original_positions, 32);
  const double base = 50000, turns = 32 * std::pow(base, -0.25) / (2 * std::numbers::pi);
  const std::vector<double> found = rotary_frequencies(model);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], 1);  // turns 5 times
  ASSERT_LT(turns, 1);
  for (int i = 1; i < 4; ++i) EXPECT_NEAR(found[i], std::pow(base, -0.25 * i) / 4, 1e-15);
  EXPECT_EQ(rotary_frequencies(read_again(to_hugging_face(model, family_for(model)))), found);
}

TEST(RotaryFrequencies, GrowByAnyFactor) {
  for (const double growth : {0.9, 1.25}) {
    const ModelConfig model =
        read_llama({{"rope_type", "yarn"}, {"factor", 1.0}, {"attention_factor", growth}});
    EXPECT_EQ(model.rotary_attention_factor, growth);
    EXPECT_NEAR(rotary_score_scale(model), growth * growth, 1e-15);
    EXPECT_EQ(read_again(to_hugging_face(model, family_for(model))).rotary_attention_factor, growth);
  }
}

TEST(RotaryFrequencies, BlendBetweenFractionsOfPairsWithoutTruncation) {
  const json scaling{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  json fractions = scaling;
  fractions["truncate"] = false;
  const ModelConfig model = read_llama(fractions);
  // The pairs that turn 32 times and once.
  const auto pair_that_turns = [](double turns) {
    return 4 * std::log(2048 / (turns * 2 * std::numbers::pi)) / std::log(50000.0);
  };
  const auto expect_blend = [](const ModelConfig& config, double begin, double end) {
    const std::vector<double> found = rotary_frequencies(config);
    for (int i = 0; i < 4; ++i) {
      const double scaled = std::clamp((i - begin) / (end - begin), 0.0, 1.0);
      EXPECT_NEAR(found.at(i), std::pow(50000, -0.25 * i) * (1 - scaled + scaled / 4), 1e-15) << i;
    }
  };
  expect_blend(model, pair_that_turns(32), pair_that_turns(1));
  expect_blend(read_llama(scaling), 0, 3);
  EXPECT_TRUE(read_again(to_hugging_face(model, family_for(model))).rope_no_truncate);
}

// 'factor' null is the ratio of the positions.
TEST(RotaryFrequencies, TakeTheFactorFromPositions) {
  EXPECT_EQ(read_llama({{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 16}})
                .rotary_scaling_factor,
            4);
}

// The factor is the ratio of the positions, of which the file's or its class's come before the object's.
TEST(RotaryFrequencies, ReadTheListsOfLongRope) {
  const json scaling{{"rope_type", "longrope"},
                     {"short_factor", {1.0, 1.25, 2.0, 4.0}},
                     {"long_factor", {2.0, 4.0, 8.0, 16.0}},
                     {"original_max_position_embeddings", 16}};
  const ModelConfig model = read_llama(scaling);
  EXPECT_EQ(model.rotary_scaling_factor, 4);
  EXPECT_EQ(model.original_max_position_embeddings, 16);
  EXPECT_NEAR(rotary_score_scale(model), 1.5, 1e-15);  // 1 + ln 4 / ln 16
  ASSERT_EQ(model.seq_length, 64);
  EXPECT_EQ(rotary_frequencies(model)[0], 0.5);
  const ModelConfig again = read_again(to_hugging_face(model, family_for(model)));
  EXPECT_EQ(rotary_frequencies(again), rotary_frequencies(model));
  EXPECT_EQ(again.rope_short_factor, model.rope_short_factor);
  json config = to_hugging_face(model, family_for(model, "phi3"));
  EXPECT_FALSE(config["rope_scaling"].contains("factor"));
  EXPECT_EQ(config["original_max_position_embeddings"], 16);
  EXPECT_EQ(read_again(config).rope_long_factor, model.rope_long_factor);
  config.erase("original_max_position_embeddings");  // a Phi-3 has 4096 of its own
  config["rope_scaling"]["original_max_position_embeddings"] = 16;
  EXPECT_EQ(read_again(config).original_max_position_embeddings, 4096);
  EXPECT_EQ(rotary_score_scale(read_again(config)), 1);
  for (const auto& [field, value] : std::vector<std::pair<const char*, json>>{
           {"short_factor", {1.0, 2.0}}, {"long_factor", {1, 2, 3, 0}}, {"long_factor", 2.0}}) {
    json wrong = scaling;
    wrong[field] = value;
    try {
      read_llama(wrong);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("'{}' ", field)), std::string::npos)
          << error.what();
    }
  }
}

std::string refusal(const json& changes) {
  json config{{"model_type", "mixtral"}};
  if (!changes.is_null()) config.update(changes);
  try {
    from_hugging_face(config, "here");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ModelConfig read_mixtral(const json& changes) {
  json config{{"model_type", "mixtral"}};
  if (!changes.is_null()) config.update(changes);
  return from_hugging_face(config, "here");
}

// As RotaryEmbeddingConfigMixin in transformers merges the places.
TEST(RotaryFrequencies, AreReadFromAllPlaces) {
  EXPECT_EQ(read_mixtral({}).rotary_base, 1e6);
  EXPECT_EQ(read_mixtral({{"rope_parameters", {{"rope_type", "default"}}}}).rotary_base, 1e6);
  EXPECT_EQ(
      read_mixtral({{"rope_theta", 500.0}, {"rope_parameters", {{"rope_type", "default"}}}}).rotary_base,
      500);
  EXPECT_EQ(read_mixtral({{"rope_theta", 500.0}, {"rope_parameters", {{"rope_theta", 700.0}}}}).rotary_base,
            700);
  const ModelConfig scaled =
      read_mixtral({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                    {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}});
  EXPECT_EQ(scaled.rotary_seq_len_interpolation_factor, 4);
  EXPECT_EQ(scaled.rotary_base, 1e6);
  const json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  EXPECT_EQ(read_mixtral({{"rope_scaling", yarn}, {"original_max_position_embeddings", 32}})
                .original_max_position_embeddings,
            32);
}

TEST(RotaryFrequencies, AreRefusedByTheNameOfTheField) {
  const json linear{{"type", "linear"}, {"factor", 4.0}};
  for (const auto& [changes, part] : std::vector<std::pair<json, const char*>>{
           {{{"rope_scaling", linear}, {"rope_parameters", {{"rope_theta", 700.0}}}},
            "'rope_scaling' replaces 'rope_parameters', and with it its 'rope_theta', 700"},
           {{{"rope_scaling", {{"type", "linear"}}}}, "'rope_scaling': 'factor' is missing"},
           {{{"rope_scaling", {{"type", "yarn"}, {"factor", 0}}}}, "'rope_scaling': 'factor' is 0; from 1"},
           {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"attention_factor", 0}}}},
            "'attention_factor' is 0; above 0"},
           {{{"rope_parameters", {{"full_attention", linear}}}},
            "'rope_parameters': 'full_attention' is an object; this field is not known"},
           {{{"rope_scaling", {{"type", "llama3"}, {"factor", 8}}}}, "'low_freq_factor' is missing"},
           {{{"partial_rotary_factor", 0.5}}, "'partial_rotary_factor' is 0.5; only 1 is supported"},
           {{{"rope_theta", 0}}, "'rope_theta' 0 is not possible"}})
    EXPECT_NE(refusal(changes).find(part), std::string::npos) << part << "\n" << refusal(changes);
}

}  // namespace
}  // namespace trifold
