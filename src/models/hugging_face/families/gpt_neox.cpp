// GPT-NeoX: a GPT with rotary positions in a part of each head, whose tensor of queries, keys and values has the rows of
// each head together. Attention and feed-forward network are in parallel, as in Pythia, or in turn, as in
// RedPajama-INCITE.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr RopeStyle kNeoxRope{
    .partial = true, .fraction = 0.25, .base_name = "rotary_emb_base", .fraction_name = "rotary_pct"};
constexpr int64_t kQueryKeyValue = 3;

ConfigFields neox_fields() {
  return joined({{field({"vocab_size"}, 50432),          field({"hidden_size"}, 6144),
                  field({"num_hidden_layers"}, 44),      field({"num_attention_heads"}, 64),
                  field({"intermediate_size"}, 24576),   field({"hidden_act"}, "gelu"),
                  field({"attention_dropout"}, 0.0),     field({"hidden_dropout"}, 0.0),
                  unused({"classifier_dropout"}, 0.1),   field({"max_position_embeddings"}, 2048),
                  field({"initializer_range"}, 0.02),    field({"layer_norm_eps"}, 1e-5),
                  unused({"use_cache"}, true),           unused({"bos_token_id"}, 0),
                  unused({"eos_token_id"}, 2),           unused({"pad_token_id"}),
                  field({"tie_word_embeddings"}, false), field({"use_parallel_residual"}, true),
                  field({"attention_bias"}, true),       fixed("is_decoder", false, {true})},
                 rope_fields(kNeoxRope)});
}

ModelConfig read_neox(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  model.position_embedding_type = PositionEmbedding::Rope;
  model.norm_epsilon = from.number("layer_norm_eps");
  model.hidden_dropout = from.number("hidden_dropout");
  model.attention_dropout = from.number("attention_dropout");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  model.disable_bias_linear = model.add_mlp_bias = !from.flag("attention_bias");
  if (from.flag("use_parallel_residual")) model.parallel_residual = ParallelResidual::TwoNorms;
  read_gelu(from, "hidden_act", model);
  read_rope(from, model, kNeoxRope);
  return model;
}

json neox_json(const ModelConfig& model) {
  json config = sizes_json(model);
  config.update({{"architectures", {"GPTNeoXForCausalLM"}},
                 {"model_type", "gpt_neox"},
                 {"hidden_act", gelu_name(model)},
                 {"layer_norm_eps", model.norm_epsilon},
                 {"hidden_dropout", model.hidden_dropout},
                 {"attention_dropout", model.attention_dropout},
                 {"attention_bias", !model.disable_bias_linear || model.add_qkv_bias},
                 {"use_parallel_residual", model.parallel_residual != ParallelResidual::None}});
  write_rope(config, model, kNeoxRope);
  return config;
}

std::vector<std::string> neox_misses(const ModelConfig& model) {
  return not_met(
      {{model.normalization == Normalization::LayerNorm, "--normalization LayerNorm"},
       {!model.num_experts, "no --num-experts"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {!model.swiglu, "no --swiglu"},
       {key_heads(model) == model.num_attention_heads, "as many key heads as query heads"}});
}

// Masks, tables of angles, and a tied head.
bool neox_ignores(const std::string& theirs, const ModelConfig& model) {
  if (theirs == "embed_out.weight" || theirs == "lm_head.weight")
    return !model.untie_embeddings_and_output_weights;
  return theirs.ends_with(".attention.bias") || theirs.ends_with(".attention.masked_bias") ||
         theirs.ends_with(".rotary_emb.inv_freq");
}

std::vector<TiedTensors> neox_tied(const ModelConfig& model) {
  if (model.untie_embeddings_and_output_weights) return {};
  return {{"embed_out.weight", "gpt_neox.embed_in.weight"}, {"lm_head.weight", "gpt_neox.embed_in.weight"}};
}

TensorNames neox_names() {
  const auto heads = [](const ModelConfig& model) { return model.num_attention_heads; };
  return {"gpt_neox.",
          "layers.",
          {{"norm1.gain", {"input_layernorm.weight"}},
           {"norm1.bias", {"input_layernorm.bias"}},
           {"attention.qkv.weight", {"attention.query_key_value.weight"}, false, {}, heads, kQueryKeyValue},
           {"attention.qkv.bias", {"attention.query_key_value.bias"}, false, {}, heads, kQueryKeyValue},
           {"attention.out.weight", {"attention.dense.weight"}},
           {"attention.out.bias", {"attention.dense.bias"}},
           {"norm2.gain", {"post_attention_layernorm.weight"}},
           {"norm2.bias", {"post_attention_layernorm.bias"}},
           {"mlp.up.weight", {"mlp.dense_h_to_4h.weight"}},
           {"mlp.up.bias", {"mlp.dense_h_to_4h.bias"}},
           {"mlp.down.weight", {"mlp.dense_4h_to_h.weight"}},
           {"mlp.down.bias", {"mlp.dense_4h_to_h.bias"}}},
          {{"embedding.tokens.weight", {"embed_in.weight"}},
           {"final_norm.gain", {"final_layer_norm.weight"}},
           {"final_norm.bias", {"final_layer_norm.bias"}}},
          {{"head.weight", {"embed_out.weight"}, false, {{"lm_head.weight"}}}}};
}

}  // namespace

const HuggingFaceFamily& gpt_neox_family() {
  static const HuggingFaceFamily kFamily{.name = "GPT-NeoX",
                                         .type = "gpt_neox",
                                         .fields = neox_fields(),
                                         .names = neox_names(),
                                         .read = read_neox,
                                         .write = neox_json,
                                         .missing = neox_misses,
                                         .ignores = neox_ignores,
                                         .tied = neox_tied,
                                         .auto_class = [](const ModelConfig&) { return "CausalLM"; }};
  return kFamily;
}

}  // namespace trifold
