// Phi-3 and Phi-4: Llamas whose queries, keys and values are in one tensor, and so are gates and outputs of the
// feed-forward network. Positions beyond the original training are rotated as LongRoPE has it.
#include <fmt/format.h>

#include <algorithm>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr RopeStyle kPhi3Rope{.partial = true};

ConfigFields phi3_fields() {
  ConfigFields rope = rope_fields(kPhi3Rope);
  const auto is_original = [](const ConfigField& field) {
    return field.names.front() == std::string_view("original_max_position_embeddings");
  };
  std::erase_if(rope, is_original);
  return joined({{field({"vocab_size"}, 32064),
                  field({"hidden_size"}, 3072),
                  field({"intermediate_size"}, 8192),
                  field({"num_hidden_layers"}, 32),
                  field({"num_attention_heads"}, 32),
                  field({"num_key_value_heads"}, nullptr),
                  fixed("resid_pdrop", 0.0),
                  fixed("embd_pdrop", 0.0),
                  field({"attention_dropout"}, 0.0),
                  fixed("hidden_act", "silu", {"swish"}),
                  field({"max_position_embeddings"}, 4096),
                  field({"original_max_position_embeddings"}, 4096),
                  field({"initializer_range"}, 0.02),
                  field({"rms_norm_eps"}, 1e-5),
                  unused({"use_cache"}, true),
                  field({"tie_word_embeddings"}, false),
                  unused({"bos_token_id"}, 1),
                  unused({"eos_token_id"}, 32000),
                  unused({"pad_token_id"}, 32000),
                  field({"sliding_window"}, nullptr),
                  field({"head_dim"}, nullptr).beyond_class(),
                  fixed("attention_bias", false).beyond_class(),
                  fixed("mlp_bias", false).beyond_class(),
                  fixed("full_attn_mod", 1).beyond_class(),
                  fixed("interpolate_factor", 1).beyond_class(),
                  fixed("lm_head_bias", false).beyond_class()},
                 rope});
}

bool fits_rope(const ModelConfig& model) {
  return turns_plainly(model) || model.rope_type == RopeType::LongRope;
}

ModelConfig read_phi3(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model, kPhi3Rope);
  read_one_window(from, model);
  // transformers takes every other type of a Phi-3 for longrope, or refuses it.
  if (!fits_rope(model)) from.problem("'rope_scaling': a Phi-3 has the types default and longrope");
  return model;
}

// As published files have it: the positions are outside the object, and the factor follows from them.
void write_long_rope(json& config, const ModelConfig& model) {
  json& rope = config["rope_scaling"];
  rope["type"] = rope["rope_type"];
  config["original_max_position_embeddings"] = model.original_max_position_embeddings;
  for (const char* other : {"rope_type", "original_max_position_embeddings"}) rope.erase(other);
  const double follows = static_cast<double>(*model.max_position_embeddings) /
                         static_cast<double>(model.original_max_position_embeddings);
  if (std::max(1.0, follows) == model.rotary_scaling_factor) rope.erase("factor");
}

json phi3_json(const ModelConfig& model) {
  json config = llama_json(model);
  for (const char* other : {"attention_bias", "mlp_bias"}) config.erase(other);
  write_head_width_if_odd(config, model);
  config["architectures"] = {"Phi3ForCausalLM"};
  config["model_type"] = "phi3";
  config["sliding_window"] = window_json(model);
  config["resid_pdrop"] = config["embd_pdrop"] = 0.0;
  write_rope(config, model, kPhi3Rope);
  config["original_max_position_embeddings"] = *model.max_position_embeddings;
  if (model.rope_type == RopeType::LongRope) write_long_rope(config, model);
  return config;
}

std::vector<std::string> phi3_misses(const ModelConfig& model) {
  return not_met({{fits_rope(model), "no scaling of rope but longrope"}}, decoder_misses(model));
}

TensorNames phi3_names() {
  TensorNames names = llama_family().names;
  for (TensorNames::Entry& entry : names.in_block) {
    const bool in_heads = entry.ours.starts_with("attention.") && entry.ours != "attention.out.weight";
    if (in_heads && entry.ours.ends_with(".weight")) entry.theirs = {"self_attn.qkv_proj.weight"};
    if (entry.ours == "mlp.up.weight") entry.theirs = {"mlp.gate_up_proj.weight"};
  }
  std::erase_if(names.in_block,
                [](const TensorNames::Entry& entry) { return entry.ours.ends_with(".bias"); });
  return names;
}

}  // namespace

const HuggingFaceFamily& phi3_family() {
  static const HuggingFaceFamily kFamily{.name = "Phi-3",
                                         .type = "phi3",
                                         .fields = phi3_fields(),
                                         .names = phi3_names(),
                                         .read = read_phi3,
                                         .write = phi3_json,
                                         .missing = phi3_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
