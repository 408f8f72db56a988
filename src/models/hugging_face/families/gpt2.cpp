#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields gpt2_fields() {
  return {
      field({"vocab_size"}, 50257),
      field({"max_position_embeddings", "n_positions"}, 1024),
      field({"hidden_size", "n_embd"}, 768),
      field({"num_hidden_layers", "n_layer"}, 12),
      field({"num_attention_heads", "n_head"}, 12),
      field({"n_inner"}, nullptr),
      field({"activation_function"}, "gelu_new"),
      field({"resid_pdrop"}, 0.1),
      field({"embd_pdrop"}, 0.1),
      field({"attn_pdrop"}, 0.1),
      field({"layer_norm_epsilon"}, 1e-5),
      field({"initializer_range"}, 0.02),
      unused({"summary_type"}, "cls_index"),
      unused({"summary_use_proj"}, true),
      unused({"summary_activation"}),
      unused({"summary_proj_to_labels"}, true),
      unused({"summary_first_dropout"}, 0.1),
      fixed("scale_attn_weights", true),
      unused({"use_cache"}, true),
      unused({"bos_token_id"}, 50256),
      unused({"eos_token_id"}, 50256),
      unused({"pad_token_id"}),
      fixed("scale_attn_by_inverse_layer_idx", false),
      unused({"reorder_and_upcast_attn"}, false),
      fixed("add_cross_attention", false),
      field({"tie_word_embeddings"}, true),
      unused({"n_ctx"}).beyond_class(),
  };
}

ModelConfig read_gpt2(ConfigReader& from) {
  ModelConfig model;
  model.num_layers = from.size("n_layer");
  model.hidden_size = from.size("n_embd");
  model.num_attention_heads = from.size("n_head");
  model.ffn_hidden_size = from.size_or_null("n_inner").value_or(4 * model.hidden_size);
  model.max_position_embeddings = from.size("n_positions");
  model.vocab_size = from.size("vocab_size");
  model.norm_epsilon = from.number("layer_norm_epsilon");
  model.init_method_std = from.number("initializer_range");
  // Trifold has one rate for the embedding and for additions to the residual stream.
  model.hidden_dropout = from.number("resid_pdrop");
  if (from.number("embd_pdrop") != model.hidden_dropout)
    from.problem("'embd_pdrop' and 'resid_pdrop' differ; give both the same value");
  model.attention_dropout = from.number("attn_pdrop");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  model.squared_relu = from.value("activation_function") == "relu2";
  if (!model.squared_relu) read_gelu(from, "activation_function", model, "\"relu2\", ");
  return model;
}

json gpt2_json(const ModelConfig& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", model.squared_relu ? "relu2" : gelu_name(model)},
          {"n_layer", model.num_layers},
          {"n_embd", model.hidden_size},
          {"n_head", model.num_attention_heads},
          {"n_inner", *model.ffn_hidden_size},
          {"n_positions", *model.max_position_embeddings},
          {"n_ctx", *model.max_position_embeddings},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"resid_pdrop", model.hidden_dropout},
          {"embd_pdrop", model.hidden_dropout},
          {"attn_pdrop", model.attention_dropout}};
}

std::vector<std::string> gpt2_misses(const ModelConfig& model) {
  return not_met(
      {{model.normalization == Normalization::LayerNorm, "--normalization LayerNorm"},
       {!model.num_experts, "no --num-experts"},
       {!model.qk_layernorm, "no --qk-layernorm"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::LearnedAbsolute,
        "--position-embedding-type learned_absolute"},
       {!model.swiglu, "no --swiglu"},
       {!model.disable_bias_linear, "no --disable-bias-linear"},
       {key_heads(model) == model.num_attention_heads, "as many key heads as query heads"},
       {head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels"}});
}

// Masks, and a tied head.
bool gpt2_ignores(const std::string& theirs, const ModelConfig& model) {
  if (theirs == "lm_head.weight") return !model.untie_embeddings_and_output_weights;
  return theirs.ends_with(".attn.bias") || theirs.ends_with(".attn.masked_bias");
}

std::vector<TiedTensors> gpt2_tied(const ModelConfig& model) {
  if (model.untie_embeddings_and_output_weights) return {};
  return {{"lm_head.weight", "transformer.wte.weight"}};
}

}  // namespace

const HuggingFaceFamily& gpt2_family() {
  static const HuggingFaceFamily kFamily{"GPT-2",
                                         "gpt2",
                                         gpt2_fields(),
                                         {"transformer.",
                                          "h.",
                                          {{"norm1.gain", {"ln_1.weight"}},
                                           {"norm1.bias", {"ln_1.bias"}},
                                           {"attention.qkv.weight", {"attn.c_attn.weight"}, true},
                                           {"attention.qkv.bias", {"attn.c_attn.bias"}},
                                           {"attention.out.weight", {"attn.c_proj.weight"}, true},
                                           {"attention.out.bias", {"attn.c_proj.bias"}},
                                           {"norm2.gain", {"ln_2.weight"}},
                                           {"norm2.bias", {"ln_2.bias"}},
                                           {"mlp.up.weight", {"mlp.c_fc.weight"}, true},
                                           {"mlp.up.bias", {"mlp.c_fc.bias"}},
                                           {"mlp.down.weight", {"mlp.c_proj.weight"}, true},
                                           {"mlp.down.bias", {"mlp.c_proj.bias"}}},
                                          {{"embedding.tokens.weight", {"wte.weight"}},
                                           {"embedding.positions.weight", {"wpe.weight"}},
                                           {"final_norm.gain", {"ln_f.weight"}},
                                           {"final_norm.bias", {"ln_f.bias"}}}},
                                         read_gpt2,
                                         gpt2_json,
                                         gpt2_misses,
                                         gpt2_ignores,
                                         gpt2_tied,
                                         [](const ModelConfig&) { return "CausalLM"; }};
  return kFamily;
}

}  // namespace trifold
