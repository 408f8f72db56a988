// OLMo 2 and 3: Llamas that normalize the outputs of a layer's parts in place of their inputs, and the queries and keys
// of all heads as one row. In OLMo 3 some layers have windows, and those without may have rope scaled.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr WindowRopeStyle kOlmo3Rope{.base = 5e5, .window_base = 5e5};
constexpr int64_t kOlmo3Period = 4;  // every fourth layer has no window

ConfigFields olmo_fields() {
  return {field({"vocab_size"}, 50304),
          field({"hidden_size"}, 4096),
          field({"intermediate_size"}, 11008),
          field({"num_hidden_layers"}, 32),
          field({"num_attention_heads"}, 32),
          field({"num_key_value_heads"}, nullptr),
          fixed("hidden_act", "silu", {"swish"}),
          field({"max_position_embeddings"}, 2048),
          field({"initializer_range"}, 0.02),
          unused({"use_cache"}, true),
          unused({"pad_token_id"}, 1),
          unused({"bos_token_id"}),
          unused({"eos_token_id"}, 50279),
          field({"tie_word_embeddings"}, false),
          field({"attention_bias"}, false),
          field({"attention_dropout"}, 0.0),
          field({"rms_norm_eps"}, 1e-5),
          field({"head_dim"}, nullptr).beyond_class(),
          fixed("mlp_bias", false).beyond_class(),
          fixed("clip_qkv", nullptr).beyond_class()};
}

// Everything but rope and windows.
ModelConfig read_olmo(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  model.add_qkv_bias = model.add_attention_out_bias = from.flag("attention_bias");
  model.norm_position = NormPosition::Output;
  model.qk_layernorm = model.qk_layernorm_across_heads = true;
  return model;
}

ModelConfig read_olmo2(ConfigReader& from) {
  ModelConfig model = read_olmo(from);
  read_rope(from, model);
  return model;
}

ModelConfig read_olmo3(ConfigReader& from) {
  ModelConfig model = read_olmo(from);
  read_window_rope(from, model, kOlmo3Rope);
  read_windows(from, model, from.size_or_null("sliding_window"), all_but_every(kOlmo3Period, model));
  return model;
}

json olmo_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  write_head_width_if_odd(config, model);
  config["architectures"] = {architecture};
  config["model_type"] = type;
  return config;
}

json olmo3_json(const ModelConfig& model) {
  json config = olmo_json(model, "Olmo3ForCausalLM", "olmo3");
  config["sliding_window"] = window_json(model);
  config["layer_types"] = layer_types_json(model);
  write_window_rope(config, model);
  return config;
}

std::vector<std::string> olmo_misses(const ModelConfig& model) {
  return not_met({{model.norm_position == NormPosition::Output, "--norm-position output"},
                  {model.qk_layernorm_across_heads, "--qk-layernorm-across-heads"}},
                 decoder_misses(model));
}

TensorNames olmo_names() {
  TensorNames names = llama_family().names;
  std::erase_if(names.in_block,
                [](const TensorNames::Entry& entry) { return entry.ours.starts_with("norm"); });
  names.in_block.push_back({"attention.output_norm.gain", {"post_attention_layernorm.weight"}});
  names.in_block.push_back({"mlp.output_norm.gain", {"post_feedforward_layernorm.weight"}});
  return with_head_norms(std::move(names));
}

}  // namespace

const HuggingFaceFamily& olmo2_family() {
  static const HuggingFaceFamily kFamily{
      .name = "OLMo 2",
      .type = "olmo2",
      .fields = joined({olmo_fields(), rope_fields({})}),
      .names = olmo_names(),
      .read = read_olmo2,
      .write = [](const ModelConfig& model) { return olmo_json(model, "Olmo2ForCausalLM", "olmo2"); },
      .missing = olmo_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& olmo3_family() {
  static const HuggingFaceFamily kFamily{
      .name = "OLMo 3",
      .type = "olmo3",
      .fields = joined({olmo_fields(),
                        {field({"sliding_window"}, 4096).or_null(), field({"layer_types"}, nullptr)},
                        window_rope_fields(kOlmo3Rope)}),
      .names = olmo_names(),
      .read = read_olmo3,
      .write = olmo3_json,
      .missing = olmo_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
