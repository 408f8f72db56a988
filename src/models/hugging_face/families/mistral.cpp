// Mistral and Ministral: Llamas with sliding windows. Mistral has one window for all layers, Ministral a list of their
// types.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields mistral_fields(bool types_of_class) {
  const ConfigField types = field({"layer_types"}, nullptr);
  return joined({{field({"vocab_size"}, 32000), field({"hidden_size"}, 4096),
                  field({"intermediate_size"}, 14336), field({"num_hidden_layers"}, 32),
                  field({"num_attention_heads"}, 32), field({"num_key_value_heads"}, 8).or_null(),
                  field({"head_dim"}, nullptr), field({"max_position_embeddings"}, 131072),
                  field({"rms_norm_eps"}, 1e-6), unused({"bos_token_id"}, 1), unused({"eos_token_id"}, 2),
                  field({"sliding_window"}, 4096).or_null(), types_of_class ? types : types.beyond_class(),
                  fixed("attention_bias", false).beyond_class(), fixed("mlp_bias", false).beyond_class()},
                 decoder_fields()});
}

// Everything but windows.
ModelConfig read_decoder_and_rope(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model);
  return model;
}

ModelConfig read_mistral(ConfigReader& from) {
  ModelConfig model = read_decoder_and_rope(from);
  read_one_window(from, model);
  return model;
}

// Without a list of types, all layers have the window.
ModelConfig read_ministral(ConfigReader& from) {
  ModelConfig model = read_decoder_and_rope(from);
  const auto window = from.size_or_null("sliding_window");
  read_windows(from, model, window,
               std::vector<bool>(static_cast<size_t>(model.num_layers), window.has_value()));
  return model;
}

json mistral_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = llama_json(model);
  for (const char* other : {"attention_bias", "mlp_bias"}) config.erase(other);
  config["architectures"] = {architecture};
  config["model_type"] = type;
  config["sliding_window"] = window_json(model);
  return config;
}

std::vector<std::string> mistral_misses(const ModelConfig& model) { return decoder_misses(model); }

}  // namespace

const HuggingFaceFamily& mistral_family() {
  static const HuggingFaceFamily kFamily{
      .name = "Mistral",
      .type = "mistral",
      .fields = mistral_fields(false),
      .names = llama_family().names,
      .read = read_mistral,
      .write = [](const ModelConfig& model) { return mistral_json(model, "MistralForCausalLM", "mistral"); },
      .missing = mistral_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& ministral_family() {
  static const HuggingFaceFamily kFamily{.name = "Ministral",
                                         .type = "ministral",
                                         .fields = mistral_fields(true),
                                         .names = llama_family().names,
                                         .read = read_ministral,
                                         .write =
                                             [](const ModelConfig& model) {
                                               json config =
                                                   mistral_json(model, "MinistralForCausalLM", "ministral");
                                               // transformers opens no Ministral without a window.
                                               if (config["sliding_window"].is_null())
                                                 config["sliding_window"] = *model.max_position_embeddings;
                                               config["layer_types"] = layer_types_json(model);
                                               return config;
                                             },
                                         .missing = mistral_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
