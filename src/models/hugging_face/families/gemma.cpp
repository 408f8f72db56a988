// Gemma 2 and 3: Llamas with gates of GELU, norms of the inputs and of the outputs of a layer's parts, whose gains are
// stored without 1, and an embedding multiplied by the square root of its width. Some layers have windows; in Gemma 3
// these have a base of rope of their own.
#include <fmt/format.h>

#include <cmath>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr WindowRopeStyle kGemma3Rope{
    .base = 1e6, .window_base = 1e4, .window_base_name = "rope_local_base_freq"};
constexpr int64_t kGemma2Period = 2;  // every second layer has no window

ConfigFields gemma_fields() {
  return {field({"hidden_size"}, 2304),
          field({"intermediate_size"}, 9216),
          field({"num_hidden_layers"}, 26),
          field({"num_attention_heads"}, 8),
          field({"num_key_value_heads"}, 4),
          field({"head_dim"}, 256),
          field({"hidden_activation"}, "gelu_pytorch_tanh"),
          unused({"hidden_act"}).beyond_class(),
          field({"initializer_range"}, 0.02),
          field({"rms_norm_eps"}, 1e-6),
          unused({"use_cache"}, true),
          unused({"pad_token_id"}, 0),
          unused({"eos_token_id"}, 1),
          unused({"bos_token_id"}, 2),
          field({"tie_word_embeddings"}, true),
          field({"attention_bias"}, false),
          field({"attention_dropout"}, 0.0),
          field({"query_pre_attn_scalar"}, 256),
          field({"sliding_window"}, 4096).or_null(),
          field({"layer_types"}, nullptr),
          unused({"sliding_window_size"}).beyond_class(),
          unused({"cache_implementation"}).beyond_class(),
          fixed("mlp_bias", false).beyond_class()};
}

ConfigFields gemma2_fields() {
  return joined(
      {{field({"vocab_size"}, 256000), field({"max_position_embeddings"}, 8192),
        field({"final_logit_softcapping"}, 30.0).or_null(), field({"attn_logit_softcapping"}, 50.0).or_null(),
        fixed("use_bidirectional_attention", nullptr, {false})},
       gemma_fields(),
       rope_fields({})});
}

// transformers has a cap of scores in the class of a Gemma 3, and does not apply it.
ConfigFields gemma3_fields() {
  return joined({{field({"vocab_size"}, 262208), field({"max_position_embeddings"}, 131072),
                  field({"final_logit_softcapping"}, nullptr), fixed("attn_logit_softcapping", nullptr),
                  fixed("use_bidirectional_attention", false).or_null(),
                  field({"sliding_window_pattern"}, 6).beyond_class(),
                  unused({"_sliding_window_pattern"}).beyond_class()},
                 gemma_fields(),
                 window_rope_fields(kGemma3Rope)});
}

// Everything but rope and windows.
ModelConfig read_gemma(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  model.swiglu = false;
  model.geglu = true;
  read_gelu(from, "hidden_activation", model);
  model.add_qkv_bias = model.add_attention_out_bias = from.flag("attention_bias");
  model.apply_layernorm_1p = true;
  model.norm_position = NormPosition::Both;
  model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden_size));
  const double scalar = from.number("query_pre_attn_scalar");
  if (scalar > 0)
    set_softmax_scale(model, 1 / std::sqrt(scalar));
  else
    from.problem(fmt::format("'query_pre_attn_scalar' is {}; a number above 0 is needed", scalar));
  model.final_logit_softcapping = from.number_or_null("final_logit_softcapping");
  return model;
}

ModelConfig read_gemma2(ConfigReader& from) {
  ModelConfig model = read_gemma(from);
  model.attn_logit_softcapping = from.number_or_null("attn_logit_softcapping");
  read_rope(from, model);
  read_windows(from, model, from.size_or_null("sliding_window"), all_but_every(kGemma2Period, model));
  return model;
}

ModelConfig read_gemma3(ConfigReader& from) {
  ModelConfig model = read_gemma(from);
  model.qk_layernorm = true;
  read_window_rope(from, model, kGemma3Rope);
  const std::vector<bool> windows = read_all_but_every(from, model, "sliding_window_pattern");
  read_windows(from, model, from.size_or_null("sliding_window"), windows);
  return model;
}

json gemma_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = llama_json(model);
  for (const char* other : {"hidden_act", "mlp_bias"}) config.erase(other);
  config.update({{"architectures", {architecture}},
                 {"model_type", type},
                 {"hidden_activation", model.gelu == GeluKind::Erf ? "gelu" : "gelu_pytorch_tanh"},
                 {"query_pre_attn_scalar", std::llround(1 / std::pow(softmax_scale(model), 2))},
                 {"layer_types", layer_types_json(model)}});
  // transformers opens no Gemma without a window.
  const json window = window_json(model);
  config["sliding_window"] = window.is_null() ? json(*model.max_position_embeddings) : window;
  for (const auto& [name, cap] : {std::pair("attn_logit_softcapping", model.attn_logit_softcapping),
                                  {"final_logit_softcapping", model.final_logit_softcapping}})
    config[name] = cap ? json(*cap) : json();
  return config;
}

json gemma3_json(const ModelConfig& model) {
  json config = gemma_json(model, "Gemma3ForCausalLM", "gemma3_text");
  config.erase("attn_logit_softcapping");
  write_window_rope(config, model);
  return config;
}

std::vector<std::string> gemma_misses(const ModelConfig& model) {
  return not_met({{model.norm_position == NormPosition::Both, "--norm-position both"},
                  {model.apply_layernorm_1p, "--apply-layernorm-1p"}},
                 decoder_misses(model, false, true));
}

TensorNames gemma_names() {
  TensorNames names = llama_family().names;
  for (TensorNames::Entry& entry : names.in_block)
    if (entry.ours == "norm2.gain") entry.theirs = {"pre_feedforward_layernorm.weight"};
  names.in_block.push_back({"attention.output_norm.gain", {"post_attention_layernorm.weight"}});
  names.in_block.push_back({"mlp.output_norm.gain", {"post_feedforward_layernorm.weight"}});
  return names;
}

}  // namespace

const HuggingFaceFamily& gemma2_family() {
  static const HuggingFaceFamily kFamily{
      .name = "Gemma 2",
      .type = "gemma2",
      .fields = gemma2_fields(),
      .names = gemma_names(),
      .read = read_gemma2,
      .write = [](const ModelConfig& model) { return gemma_json(model, "Gemma2ForCausalLM", "gemma2"); },
      .missing = gemma_misses,
      .ignores = llama_family().ignores,
      .tied = tied_head,
      .auto_class = llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& gemma3_text_family() {
  static const HuggingFaceFamily kFamily{.name = "Gemma 3",
                                         .type = "gemma3_text",
                                         .fields = gemma3_fields(),
                                         .names = with_head_norms(gemma_names()),
                                         .read = read_gemma3,
                                         .write = gemma3_json,
                                         .missing = gemma_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
