// GLM-4 with experts (GLM-4.5, 4.6): a Llama that rotates half of each head, with DeepSeek-V3's experts.
#include <algorithm>
#include <utility>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr RopeStyle kGlm4Rope{.partial = true, .fraction = 0.5};

ConfigFields glm4_moe_fields() {
  return joined({{field({"vocab_size"}, 151552),
                  field({"hidden_size"}, 4096),
                  field({"intermediate_size"}, 10944),
                  field({"num_hidden_layers"}, 46),
                  field({"num_attention_heads"}, 96),
                  field({"num_key_value_heads"}, 8),
                  field({"max_position_embeddings"}, 131072),
                  field({"rms_norm_eps"}, 1e-5),
                  field({"attention_bias"}, false),
                  field({"moe_intermediate_size"}, 1408),
                  field({"num_experts_per_tok"}, 8),
                  unused({"output_router_logits"}, false),
                  field({"n_shared_experts"}, 1),
                  field({"num_local_experts", "n_routed_experts"}, 128),
                  field({"routed_scaling_factor"}, 1.0),
                  field({"n_group"}, 1),
                  field({"topk_group"}, 1),
                  field({"first_k_dense_replace"}, 1),
                  field({"norm_topk_prob"}, true),
                  field({"use_qk_norm"}, false),
                  unused({"bos_token_id"}),
                  unused({"eos_token_id"}),
                  field({"num_nextn_predict_layers", "num_mtp_layers"}, 1),
                  field({"head_dim"}, nullptr).beyond_class(),
                  fixed("mlp_bias", false).beyond_class()},
                 decoder_fields(kGlm4Rope)});
}

ModelConfig read_glm4_moe(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model, kGlm4Rope);
  model.add_qkv_bias = from.flag("attention_bias");
  model.qk_layernorm = from.flag("use_qk_norm");
  read_sigmoid_experts(from, model);
  return model;
}

json glm4_moe_json(const ModelConfig& model) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  config["architectures"] = {"Glm4MoeForCausalLM"};
  config["model_type"] = "glm4_moe";
  config["attention_bias"] = model.add_qkv_bias;
  config["use_qk_norm"] = model.qk_layernorm;
  write_rope(config, model, kGlm4Rope);
  write_sigmoid_experts(config, model);
  return config;
}

std::vector<std::string> glm4_moe_misses(const ModelConfig& model) {
  return sigmoid_experts_miss(model, not_met({{!model.add_attention_out_bias, "no --add-attention-out-bias"}},
                                             decoder_misses(model, model.num_experts.has_value())));
}

bool glm4_moe_ignores(const std::string& theirs, const ModelConfig& model) {
  return is_in_later_layer(theirs, model) || is_module_copy(theirs, model) ||
         llama_family().ignores(theirs, model);
}

TensorNames glm4_moe_names() {
  TensorNames names = with_head_norms(llama_family().names);
  for (TensorNames::Entry& entry : sigmoid_expert_names()) names.in_block.push_back(std::move(entry));
  names.in_module = module_names();
  return names;
}

}  // namespace

const HuggingFaceFamily& glm4_moe_family() {
  static const HuggingFaceFamily kFamily{.name = "GLM-4-MoE",
                                         .type = "glm4_moe",
                                         .fields = glm4_moe_fields(),
                                         .names = glm4_moe_names(),
                                         .read = read_glm4_moe,
                                         .write = glm4_moe_json,
                                         .missing = glm4_moe_misses,
                                         .ignores = glm4_moe_ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class,
                                         .skips = is_in_later_layer};
  return kFamily;
}

}  // namespace trifold
