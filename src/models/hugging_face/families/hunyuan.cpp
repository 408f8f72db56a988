// HunYuan: a Llama whose queries and keys have norms after their rotation.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields hunyuan_fields() {
  return joined({{field({"vocab_size"}, 290943),
                  field({"hidden_size"}, 4096),
                  field({"intermediate_size"}, 11008),
                  field({"num_hidden_layers"}, 32),
                  field({"num_attention_heads"}, 32),
                  field({"num_key_value_heads"}, nullptr),
                  field({"head_dim"}, nullptr),
                  field({"max_position_embeddings"}, 2048),
                  field({"rms_norm_eps"}, 1e-5),
                  field({"attention_bias"}, false),
                  unused({"bos_token_id"}, 1),
                  unused({"eos_token_id"}, 2),
                  unused({"eod_token_id"}, 3),
                  unused({"pad_token_id"}, 0),
                  unused({"pretraining_tp"}, 1),
                  unused({"use_cache"}, true),
                  field({"attention_dropout"}, 0.0),
                  fixed("hidden_act", "silu", {"swish"}),
                  field({"initializer_range"}, 0.02),
                  field({"tie_word_embeddings"}, false),
                  fixed("mlp_bias", false).beyond_class(),
                  fixed("use_qk_norm", true).beyond_class()},
                 rope_fields({})});
}

ModelConfig read_hunyuan(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model);
  model.add_qkv_bias = model.add_attention_out_bias = from.flag("attention_bias");
  model.qk_layernorm = model.qk_layernorm_after_rope = true;
  return model;
}

json hunyuan_json(const ModelConfig& model) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  config["architectures"] = {"HunYuanDenseV1ForCausalLM"};
  config["model_type"] = "hunyuan_v1_dense";
  return config;
}

std::vector<std::string> hunyuan_misses(const ModelConfig& model) {
  return not_met({{model.qk_layernorm, "--qk-layernorm"},
                  {model.qk_layernorm_after_rope, "--qk-layernorm-after-rope"},
                  {model.rotary_percent == 1, "--rotary-percent 1"}},
                 decoder_misses(model));
}

TensorNames hunyuan_names() {
  TensorNames names = llama_family().names;
  names.in_block.push_back({"attention.query_norm.gain", {"self_attn.query_layernorm.weight"}});
  names.in_block.push_back({"attention.key_norm.gain", {"self_attn.key_layernorm.weight"}});
  return names;
}

}  // namespace

const HuggingFaceFamily& hunyuan_v1_dense_family() {
  static const HuggingFaceFamily kFamily{.name = "HunYuan",
                                         .type = "hunyuan_v1_dense",
                                         .fields = hunyuan_fields(),
                                         .names = hunyuan_names(),
                                         .read = read_hunyuan,
                                         .write = hunyuan_json,
                                         .missing = hunyuan_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
