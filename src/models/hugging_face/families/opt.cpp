// OPT: a GPT with ReLU, whose table of positions begins with two rows of no position.
#include <fmt/format.h>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr int64_t kOptOffset = 2;
constexpr double kOptEpsilon = 1e-5;  // no field says it

ConfigFields opt_fields() {
  return {field({"vocab_size"}, 50272),
          field({"hidden_size"}, 768),
          field({"num_hidden_layers"}, 12),
          field({"ffn_dim"}, 3072),
          field({"max_position_embeddings"}, 2048),
          fixed("do_layer_norm_before", true),
          fixed("_remove_final_layer_norm", false),
          field({"word_embed_proj_dim"}, nullptr),
          field({"dropout"}, 0.1),
          field({"attention_dropout"}, 0.0),
          field({"num_attention_heads"}, 12),
          field({"activation_function"}, "relu"),
          fixed("layerdrop", 0.0),
          field({"init_std"}, 0.02),
          unused({"use_cache"}, true),
          unused({"pad_token_id"}, 1),
          unused({"bos_token_id"}, 2),
          unused({"eos_token_id"}, 2),
          field({"enable_bias"}, true),
          fixed("layer_norm_elementwise_affine", true),
          field({"tie_word_embeddings"}, true),
          fixed("activation_dropout", 0.0).beyond_class(),
          unused({"initializer_range"}).beyond_class(),
          unused({"prefix"}).beyond_class()};
}

// Trifold also drops the output of the embedding at the rate of 'dropout', which transformers does not.
ModelConfig read_opt(ConfigReader& from) {
  ModelConfig model;
  model.num_layers = from.size("num_hidden_layers");
  model.hidden_size = from.size("hidden_size");
  model.num_attention_heads = from.size("num_attention_heads");
  model.ffn_hidden_size = from.size("ffn_dim");
  model.max_position_embeddings = from.size("max_position_embeddings");
  model.position_embedding_offset = kOptOffset;
  model.vocab_size = from.size("vocab_size");
  model.init_method_std = from.number("init_std");
  model.norm_epsilon = kOptEpsilon;
  model.hidden_dropout = from.number("dropout");
  model.attention_dropout = from.number("attention_dropout");
  model.disable_bias_linear = !from.flag("enable_bias");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  const int64_t width = from.size_or_null("word_embed_proj_dim").value_or(model.hidden_size);
  if (width != model.hidden_size)
    from.problem(fmt::format("'word_embed_proj_dim' is {}; only 'hidden_size', {}, is supported", width,
                             model.hidden_size));
  model.relu = from.value("activation_function") == "relu";
  if (!model.relu) read_gelu(from, "activation_function", model, "\"relu\", ");
  return model;
}

json opt_json(const ModelConfig& model) {
  return {{"architectures", {"OPTForCausalLM"}},
          {"model_type", "opt"},
          {"num_hidden_layers", model.num_layers},
          {"hidden_size", model.hidden_size},
          {"word_embed_proj_dim", model.hidden_size},
          {"num_attention_heads", model.num_attention_heads},
          {"ffn_dim", *model.ffn_hidden_size},
          {"max_position_embeddings", *model.max_position_embeddings},
          {"init_std", model.init_method_std},
          {"activation_function", model.relu ? "relu" : gelu_name(model)},
          {"do_layer_norm_before", true},
          {"dropout", model.hidden_dropout},
          {"attention_dropout", model.attention_dropout},
          {"enable_bias", !model.disable_bias_linear}};
}

std::vector<std::string> opt_misses(const ModelConfig& model) {
  return not_met(
      {{model.normalization == Normalization::LayerNorm, "--normalization LayerNorm"},
       {!model.num_experts, "no --num-experts"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::LearnedAbsolute,
        "--position-embedding-type learned_absolute"},
       {model.position_embedding_offset == kOptOffset, "--position-embedding-offset 2"},
       {!has_gate(model), "no gate"},
       {key_heads(model) == model.num_attention_heads, "as many key heads as query heads"},
       {head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels"}});
}

bool opt_ignores(const std::string& theirs, const ModelConfig& model) {
  return theirs == "lm_head.weight" && !model.untie_embeddings_and_output_weights;
}

std::vector<TiedTensors> opt_tied(const ModelConfig& model) {
  if (model.untie_embeddings_and_output_weights) return {};
  return {{"lm_head.weight", "model.decoder.embed_tokens.weight"}};
}

TensorNames opt_names() {
  return {
      "model.",
      "decoder.layers.",
      {{"norm1.gain", {"self_attn_layer_norm.weight"}},
       {"norm1.bias", {"self_attn_layer_norm.bias"}},
       {"attention.qkv.weight",
        {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
       {"attention.qkv.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
       {"attention.out.weight", {"self_attn.out_proj.weight"}},
       {"attention.out.bias", {"self_attn.out_proj.bias"}},
       {"norm2.gain", {"final_layer_norm.weight"}},
       {"norm2.bias", {"final_layer_norm.bias"}},
       {"mlp.up.weight", {"fc1.weight"}},
       {"mlp.up.bias", {"fc1.bias"}},
       {"mlp.down.weight", {"fc2.weight"}},
       {"mlp.down.bias", {"fc2.bias"}}},
      {{"embedding.tokens.weight", {"decoder.embed_tokens.weight"}},
       {"embedding.positions.weight", {"decoder.embed_positions.weight"}},
       {"final_norm.gain", {"decoder.final_layer_norm.weight"}},
       {"final_norm.bias", {"decoder.final_layer_norm.bias"}}}};
}

}  // namespace

const HuggingFaceFamily& opt_family() {
  static const HuggingFaceFamily kFamily{.name = "OPT",
                                         .type = "opt",
                                         .fields = opt_fields(),
                                         .names = opt_names(),
                                         .read = read_opt,
                                         .write = opt_json,
                                         .missing = opt_misses,
                                         .ignores = opt_ignores,
                                         .tied = opt_tied,
                                         .auto_class = [](const ModelConfig&) { return "CausalLM"; }};
  return kFamily;
}

}  // namespace trifold
