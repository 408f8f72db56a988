// Qwen2 and Qwen3 without experts: Llamas with biases of queries, keys and values, or with norms of queries and keys.
#include <algorithm>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields qwen_fields() {
  return joined(
      {{field({"vocab_size"}, 151936), field({"hidden_size"}, 4096), field({"intermediate_size"}, 22016),
        field({"num_hidden_layers"}, 32), field({"num_attention_heads"}, 32),
        field({"num_key_value_heads"}, 32).or_null(), field({"max_position_embeddings"}, 32768),
        field({"rms_norm_eps"}, 1e-6), field({"use_sliding_window"}, false),
        field({"sliding_window"}, 4096).or_null(), field({"max_window_layers"}, 28),
        field({"layer_types"}, nullptr), unused({"bos_token_id"}), unused({"eos_token_id"}),
        fixed("mlp_bias", false).beyond_class(), fixed("use_mrope", false).beyond_class()},
       decoder_fields()});
}

// Without 'layer_types', the layers from 'max_window_layers' on have windows.
ModelConfig read_qwen(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model);
  const auto window = from.size_or_null("sliding_window");
  const bool used = from.flag("use_sliding_window") && window;
  const int64_t full = from.size("max_window_layers");
  std::vector<bool> windows;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) windows.push_back(used && layer >= full);
  read_windows(from, model, used ? window : std::nullopt, windows);
  return model;
}

ModelConfig read_qwen2_dense(ConfigReader& from) {
  ModelConfig model = read_qwen(from);
  model.add_qkv_bias = true;
  return model;
}

ModelConfig read_qwen3_dense(ConfigReader& from) {
  ModelConfig model = read_qwen(from);
  model.qk_layernorm = true;
  model.add_qkv_bias = model.add_attention_out_bias = from.flag("attention_bias");
  return model;
}

json qwen_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  config["architectures"] = {architecture};
  config["model_type"] = type;
  if (const json window = window_json(model); !window.is_null()) {
    config["use_sliding_window"] = true;
    config["sliding_window"] = window;
    const json types = layer_types_json(model);
    config["layer_types"] = types;
    config["max_window_layers"] = std::find(types.begin(), types.end(), "sliding_attention") - types.begin();
  }
  return config;
}

json qwen2_dense_json(const ModelConfig& model) {
  json config = qwen_json(model, "Qwen2ForCausalLM", "qwen2");
  config.erase("attention_bias");
  write_head_width_if_odd(config, model);
  return config;
}

json qwen3_dense_json(const ModelConfig& model) { return qwen_json(model, "Qwen3ForCausalLM", "qwen3"); }

std::vector<std::string> qwen_misses(const ModelConfig& model) { return decoder_misses(model); }

}  // namespace

const HuggingFaceFamily& qwen2_family() {
  static const HuggingFaceFamily kFamily{
      .name = "Qwen2",
      .type = "qwen2",
      .fields = joined({qwen_fields(), {field({"head_dim"}, nullptr).beyond_class()}}),
      .names = llama_family().names,
      .read = read_qwen2_dense,
      .write = qwen2_dense_json,
      .missing = qwen_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& qwen3_family() {
  static const HuggingFaceFamily kFamily{
      .name = "Qwen3",
      .type = "qwen3",
      .fields = joined({qwen_fields(), {field({"head_dim"}, 128), field({"attention_bias"}, false)}}),
      .names = with_head_norms(llama_family().names),
      .read = read_qwen3_dense,
      .write = qwen3_dense_json,
      .missing = qwen_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
