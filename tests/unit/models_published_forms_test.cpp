// Configurations in the forms in which models are published, older than the ones that transformers 5 and Trifold write,
// and what a configuration asks for that Trifold does not compute.
#include <gtest/gtest.h>

#include <cmath>

#include "config/commands/json.h"
#include "core/error.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {
namespace {

using nlohmann::json;

struct Published {
  const char* name;
  json config;
  json options;  // some fields of the model
};

const json kGemma3{{"model_type", "gemma3_text"},
                   {"hidden_size", 1152},
                   {"intermediate_size", 6912},
                   {"num_hidden_layers", 26},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 1},
                   {"head_dim", 256},
                   {"vocab_size", 262144},
                   {"max_position_embeddings", 32768},
                   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"query_pre_attn_scalar", 256},
                   {"rope_theta", 1000000},
                   {"rope_local_base_freq", 10000},
                   {"rope_scaling", nullptr},
                   {"sliding_window", 512},
                   {"sliding_window_pattern", 6},
                   {"attn_logit_softcapping", nullptr},
                   {"final_logit_softcapping", nullptr},
                   {"cache_implementation", "hybrid"}};
const json kOlmo3{{"model_type", "olmo3"},
                  {"hidden_size", 4096},
                  {"num_hidden_layers", 8},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 32},
                  {"max_position_embeddings", 65536},
                  {"rms_norm_eps", 1e-6},
                  {"rope_theta", 500000},
                  {"rope_scaling",
                   {{"rope_type", "yarn"},
                    {"factor", 8.0},
                    {"original_max_position_embeddings", 8192},
                    {"beta_fast", 32.0},
                    {"beta_slow", 1.0},
                    {"attention_factor", 1.2079441541679836}}},
                  {"sliding_window", 4096}};
const json kSmolLm3{{"model_type", "smollm3"},     {"num_hidden_layers", 4},
                    {"no_rope_layer_interval", 4}, {"no_rope_layers", {1, 1, 1, 0}},
                    {"rope_theta", 5000000.0},     {"use_sliding_window", false},
                    {"max_window_layers", 28},     {"pretraining_tp", 2}};
const json kPhi4{{"model_type", "phi3"},
                 {"hidden_size", 5120},
                 {"num_attention_heads", 40},
                 {"num_key_value_heads", 10},
                 {"intermediate_size", 17920},
                 {"max_position_embeddings", 16384},
                 {"original_max_position_embeddings", 16384},
                 {"attention_bias", false},
                 {"embd_pdrop", 0.0},
                 {"resid_pdrop", 0.0},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 250000},
                 {"sliding_window", nullptr},
                 {"vocab_size", 100352}};

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

TEST(PublishedForms, AreRead) {
  const Published models[] = {
      {"Gemma 3 1B",
       kGemma3,
       {{"window_size", "511,0"},
        {"window_attn_skip_freq", "[1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1]"},
        {"rotary_base", 1e6},
        {"window_rotary_base", 1e4},
        {"softmax_scale", nullptr},
        {"geglu", true}}},
      {"Gemma 3 with longer positions",
       with(kGemma3, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}),
       {{"rotary_seq_len_interpolation_factor", 8.0}, {"window_rotary_base", 1e4}}},
      {"Gemma 3 in windows of all positions",
       with(kGemma3, {{"max_position_embeddings", 512}}),
       {{"window_size", "511,0"}, {"window_rotary_base", 1e4}}},
      {"Mistral in a window of all positions",
       {{"model_type", "mistral"},
        {"num_hidden_layers", 1},
        {"max_position_embeddings", 64},
        {"sliding_window", 64}},
       {{"window_size", "63,0"}}},
      {"Gemma 3 without windows",
       with(kGemma3, {{"sliding_window_pattern", 1}}),
       {{"window_size", nullptr}, {"window_rotary_base", nullptr}}},
      {"Gemma 2 27B",
       {{"model_type", "gemma2"},
        {"hidden_size", 4608},
        {"num_hidden_layers", 4},
        {"num_attention_heads", 32},
        {"num_key_value_heads", 16},
        {"head_dim", 128},
        {"query_pre_attn_scalar", 144},
        {"hidden_act", "gelu_pytorch_tanh"}},
       {{"softmax_scale", 1.0 / 12},
        {"attn_logit_softcapping", 50.0},
        {"final_logit_softcapping", 30.0},
        {"window_attn_skip_freq", "[1,0,1,0]"},
        {"embedding_multiplier", std::sqrt(4608.0)}}},
      {"OLMo 3 7B",
       kOlmo3,
       {{"rope_type", "yarn"},
        {"rotary_scaling_factor", 8.0},
        {"window_rotary_base", 5e5},
        {"window_attn_skip_freq", "[1,1,1,0,1,1,1,0]"},
        {"norm_position", "output"},
        {"qk_layernorm_across_heads", true}}},
      {"Granite 3",
       {{"model_type", "granite"},
        {"num_hidden_layers", 2},
        {"hidden_size", 2048},
        {"attention_multiplier", 0.015625},
        {"embedding_multiplier", 12.0},
        {"logits_scaling", 8.0},
        {"residual_multiplier", 0.22}},
       {{"softmax_scale", 0.015625}, {"embedding_multiplier", 12.0}, {"logits_scaling", 8.0}}},
      {"SmolLM3", kSmolLm3, {{"no_rope_freq", "[0,0,0,1]"}, {"window_size", nullptr}, {"rotary_base", 5e6}}},
      {"Phi-4", kPhi4, {{"rotary_base", 250000.0}, {"num_query_groups", 10}, {"window_size", nullptr}}},
      {"Pythia",
       {{"model_type", "gpt_neox"},
        {"rotary_pct", 0.25},
        {"rotary_emb_base", 10000},
        {"use_parallel_residual", true}},
       {{"parallel_residual", "two_norms"}, {"rotary_percent", 0.25}}}};
  for (const Published& model : models) {
    SCOPED_TRACE(model.name);
    const json fields = to_json(from_hugging_face(model.config, "here"));
    for (const auto& [name, value] : model.options.items()) EXPECT_EQ(fields.at(name), value) << name;
  }
}

// A window of all positions is kept, because a run may have more positions.
TEST(PublishedForms, KeepAWindowOfAllPositions) {
  ModelConfig model = from_hugging_face({{"model_type", "mistral"},
                                         {"num_hidden_layers", 2},
                                         {"max_position_embeddings", 64},
                                         {"sliding_window", 64}},
                                        "here");
  model.max_position_embeddings = 128;
  EXPECT_EQ(to_hugging_face(model, family_for(model, "mistral")).at("sliding_window"), 64);
}

TEST(PublishedForms, AreRefusedByName) {
  const auto nested = [](const json& full, const json& sliding) {
    return json{{"rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}},
                {"rope_scaling", nullptr}};
  };
  const json linear{{"rope_type", "linear"}, {"factor", 2.0}}, plain{{"rope_type", "default"}};
  const std::pair<json, const char*> cases[] = {
      {with(kGemma3, {{"attn_logit_softcapping", 50.0}}),
       "'attn_logit_softcapping' is 50.0; only its absence"},
      {with(kGemma3, {{"use_bidirectional_attention", true}}),
       "'use_bidirectional_attention' is true; only false"},
      {with(kGemma3, {{"query_pre_attn_scalar", 0}}), "'query_pre_attn_scalar' is 0; a number above 0"},
      {with(kGemma3, {{"final_logit_softcapping", 0.0}}), "'final_logit_softcapping' 0"},
      {with(kGemma3, {{"sliding_window_pattern", 0}}), "'sliding_window_pattern' is 0; a number from 1"},
      {with(kGemma3, {{"sliding_window", nullptr}}), "'sliding_window' is null, but 22 layers have a window"},
      {with(kGemma3, {{"rope_scaling", {{"type", "linear"}, {"factor", 8.0}}}}), "call it 'rope_type'"},
      {with(kGemma3, nested(plain, linear)), "'sliding_attention' has another scaling than 'full_attention'"},
      {with(kGemma3, {{"rope_parameters", {{"rope_theta", 5e5}}}}),
       "'rope_parameters': 'rope_theta' is 500000.0"},
      {with(kOlmo3, {{"rope_theta", 10000}}), "'rope_theta' is 10000, which transformers gives to layers"},
      {with(kOlmo3, {{"clip_qkv", 8.0}}), "'clip_qkv' is 8.0; only its absence"},
      {with(kSmolLm3, {{"no_rope_layers", {1, 0}}}), "'no_rope_layers' has 2 entries for 4 layers"},
      {with(kSmolLm3, {{"no_rope_layers", {1, 2, 1, 1}}}), "a list of 1 (rope) and 0 is needed"},
      {with(kSmolLm3, {{"num_hidden_layers", 1 << 24}}), "'num_hidden_layers' is 16777216; at most 1048576"},
      {with(kSmolLm3, {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 0}}),
       "'no_rope_layer_interval' is 0; a number from 1"},
      {{{"model_type", "mistral"}, {"num_hidden_layers", 1}, {"layer_types", {"full_attention"}}},
       "'layer_types': all layers have the window of 'sliding_window'"},
      {{{"model_type", "qwen2_moe"}, {"num_hidden_layers", 1}, {"layer_types", {"sliding_attention"}}},
       "'layer_types' gives 1 layers a window, but 'use_sliding_window' is false"},
      {with(kPhi4,
            {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {2.0}}}}}),
       "'short_factor' has 1 numbers; 64 are needed"}};
  for (const auto& [config, part] : cases) {
    try {
      from_hugging_face(config, "here");
      ADD_FAILURE() << "taken, but should say: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << "\n" << error.what();
    }
  }
}

}  // namespace
}  // namespace trifold
