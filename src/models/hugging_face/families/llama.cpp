#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields llama_fields() {
  return joined({{field({"vocab_size"}, 32000),
                  field({"hidden_size"}, 4096),
                  field({"intermediate_size"}, 11008),
                  field({"num_hidden_layers"}, 32),
                  field({"num_attention_heads"}, 32),
                  field({"num_key_value_heads"}, nullptr),
                  fixed("hidden_act", "silu", {"swish"}),
                  field({"max_position_embeddings"}, 2048),
                  field({"initializer_range"}, 0.02),
                  field({"rms_norm_eps"}, 1e-6),
                  unused({"use_cache"}, true),
                  unused({"pad_token_id"}),
                  unused({"bos_token_id"}, 1),
                  unused({"eos_token_id"}, 2),
                  unused({"pretraining_tp"}, 1),
                  field({"tie_word_embeddings"}, false),
                  field({"attention_bias"}, false),
                  field({"attention_dropout"}, 0.0),
                  field({"mlp_bias"}, false),
                  field({"head_dim"}, nullptr),
                  field({"layer_types"}, nullptr).beyond_class(),
                  unused({"sliding_window"}).beyond_class(),
                  unused({"use_sliding_window"}).beyond_class(),
                  unused({"max_window_layers"}).beyond_class()},
                 rope_fields({})});
}

}  // namespace

ConfigFields decoder_fields(const RopeStyle& rope) {
  return joined({{field({"attention_dropout"}, 0.0), fixed("hidden_act", "silu", {"swish"}),
                  field({"initializer_range"}, 0.02), unused({"use_cache"}, true),
                  field({"tie_word_embeddings"}, false), unused({"pad_token_id"})},
                 rope_fields(rope)});
}

ModelConfig read_decoder(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  model.normalization = Normalization::RmsNorm;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.swiglu = true;
  model.disable_bias_linear = true;
  read_groups(from, model);
  model.norm_epsilon = from.number("rms_norm_eps");
  model.attention_dropout = from.number("attention_dropout");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  return model;
}

void read_groups(ConfigReader& from, ModelConfig& model) {
  const int64_t groups = from.size_or_null("num_key_value_heads").value_or(model.num_attention_heads);
  model.group_query_attention = groups != model.num_attention_heads;
  if (model.group_query_attention) model.num_query_groups = groups;
}

void read_head_width(ConfigReader& from, ModelConfig& model) {
  const int64_t heads = std::max<int64_t>(1, model.num_attention_heads);
  const int64_t width = from.size_or_null("head_dim").value_or(model.hidden_size / heads);
  if (width * heads != model.hidden_size) model.kv_channels = width;
}

void write_head_width_if_odd(json& config, const ModelConfig& model) {
  if (head_width(model) * model.num_attention_heads == model.hidden_size) config.erase("head_dim");
}

void read_biases(ConfigReader& from, ModelConfig& model) {
  const bool attention = from.flag("attention_bias"), mlp = from.flag("mlp_bias");
  model.disable_bias_linear = !(attention && mlp);
  model.add_qkv_bias = model.add_attention_out_bias = attention && !mlp;
  model.add_mlp_bias = mlp && !attention;
}

namespace {

double usual_softmax_scale(const ModelConfig& model) {
  return 1 / std::sqrt(static_cast<double>(key_width(model)));
}

}  // namespace

// A model without heads is rejected later, by the rules of a run.
void set_softmax_scale(ModelConfig& model, double scale) {
  if (model.num_attention_heads > 0 && scale != usual_softmax_scale(model)) model.softmax_scale = scale;
}

double softmax_scale(const ModelConfig& model) {
  return model.softmax_scale.value_or(usual_softmax_scale(model));
}

namespace {

ModelConfig read_llama(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_layer_types(from, model);
  read_biases(from, model);
  read_rope(from, model);
  return model;
}

}  // namespace

json llama_json(const ModelConfig& model) {
  json config = sizes_json(model);
  config.update({{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_act", "silu"},
                 {"num_key_value_heads", key_heads(model)},
                 {"head_dim", head_width(model)},
                 {"rms_norm_eps", model.norm_epsilon},
                 {"attention_bias", !model.disable_bias_linear || model.add_attention_out_bias},
                 {"mlp_bias", !model.disable_bias_linear || model.add_mlp_bias},
                 {"attention_dropout", model.attention_dropout}});
  write_rope(config, model);
  return config;
}

namespace {

std::vector<std::string> llama_misses(const ModelConfig& model) {
  return not_met({{!model.qk_layernorm, "no --qk-layernorm"},
                  {model.rotary_percent == 1, "--rotary-percent 1"},
                  {model.add_qkv_bias == model.add_attention_out_bias,
                   "both or none of --add-qkv-bias and --add-attention-out-bias"}},
                 decoder_misses(model));
}

// Tables of angles, and a tied head.
bool llama_ignores(const std::string& theirs, const ModelConfig& model) {
  if (theirs == "lm_head.weight") return !model.untie_embeddings_and_output_weights;
  return theirs.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

TensorNames with_head_norms(TensorNames names) {
  names.in_block.push_back({"attention.query_norm.gain", {"self_attn.q_norm.weight"}});
  names.in_block.push_back({"attention.key_norm.gain", {"self_attn.k_norm.weight"}});
  return names;
}

std::vector<TiedTensors> tied_head(const ModelConfig& model) {
  if (model.untie_embeddings_and_output_weights) return {};
  return {{"lm_head.weight", "model.embed_tokens.weight"}};
}

const HuggingFaceFamily& llama_family() {
  static const HuggingFaceFamily kFamily{
      "Llama",
      "llama",
      llama_fields(),
      {"model.",
       "layers.",
       {{"norm1.gain", {"input_layernorm.weight"}},
        {"attention.qkv.weight",
         {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
        {"attention.qkv.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
        {"attention.query.weight", {"self_attn.q_proj.weight"}},
        {"attention.query.bias", {"self_attn.q_proj.bias"}},
        {"attention.key_value.weight", {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
        {"attention.key_value.bias", {"self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
        {"attention.out.weight", {"self_attn.o_proj.weight"}},
        {"attention.out.bias", {"self_attn.o_proj.bias"}},
        {"norm2.gain", {"post_attention_layernorm.weight"}},
        {"mlp.up.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
        {"mlp.up.bias", {"mlp.gate_proj.bias", "mlp.up_proj.bias"}},
        {"mlp.down.weight", {"mlp.down_proj.weight"}},
        {"mlp.down.bias", {"mlp.down_proj.bias"}}},
       {{"embedding.tokens.weight", {"embed_tokens.weight"}}, {"final_norm.gain", {"norm.weight"}}}},
      read_llama,
      llama_json,
      llama_misses,
      llama_ignores,
      tied_head,
      [](const ModelConfig&) { return "CausalLM"; }};
  return kFamily;
}

}  // namespace trifold
