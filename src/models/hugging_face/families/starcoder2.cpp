// StarCoder2: a GPT with rotary positions and grouped queries, whose tensors have Llama's names.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields starcoder2_fields() {
  return joined({{field({"vocab_size"}, 49152),
                  field({"hidden_size"}, 3072),
                  field({"intermediate_size"}, 12288),
                  field({"num_hidden_layers"}, 30),
                  field({"num_attention_heads"}, 24),
                  field({"num_key_value_heads"}, 2).or_null(),
                  field({"hidden_act"}, "gelu_pytorch_tanh"),
                  field({"max_position_embeddings"}, 4096),
                  field({"initializer_range"}, 0.018042),
                  field({"norm_epsilon"}, 1e-5),
                  unused({"use_cache"}, true),
                  unused({"bos_token_id"}, 50256),
                  unused({"eos_token_id"}, 50256),
                  unused({"pad_token_id"}),
                  field({"sliding_window"}, nullptr),
                  field({"attention_dropout"}, 0.0),
                  field({"residual_dropout"}, 0.0),
                  field({"embedding_dropout"}, 0.0),
                  field({"use_bias"}, true),
                  field({"tie_word_embeddings"}, true),
                  field({"head_dim"}, nullptr).beyond_class(),
                  fixed("mlp_type", "default").beyond_class(),
                  fixed("norm_type", "layer_norm").beyond_class()},
                 rope_fields({})});
}

ModelConfig read_starcoder2(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  read_groups(from, model);
  read_head_width(from, model);
  model.position_embedding_type = PositionEmbedding::Rope;
  read_rope(from, model);
  model.norm_epsilon = from.number("norm_epsilon");
  // Trifold has one rate for the embedding and for additions to the residual stream.
  model.hidden_dropout = from.number("residual_dropout");
  if (from.number("embedding_dropout") != model.hidden_dropout)
    from.problem("'embedding_dropout' and 'residual_dropout' differ; give both the same value");
  model.attention_dropout = from.number("attention_dropout");
  model.disable_bias_linear = !from.flag("use_bias");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  read_gelu(from, "hidden_act", model);
  read_one_window(from, model);
  return model;
}

json starcoder2_json(const ModelConfig& model) {
  json config = sizes_json(model);
  config.update({{"architectures", {"Starcoder2ForCausalLM"}},
                 {"model_type", "starcoder2"},
                 {"hidden_act", gelu_name(model)},
                 {"num_key_value_heads", key_heads(model)},
                 {"norm_epsilon", model.norm_epsilon},
                 {"residual_dropout", model.hidden_dropout},
                 {"embedding_dropout", model.hidden_dropout},
                 {"attention_dropout", model.attention_dropout},
                 {"use_bias", !model.disable_bias_linear},
                 {"sliding_window", window_json(model)}});
  if (head_width(model) * model.num_attention_heads != model.hidden_size)
    config["head_dim"] = head_width(model);
  write_rope(config, model);
  return config;
}

std::vector<std::string> starcoder2_misses(const ModelConfig& model) {
  return not_met(
      {{model.normalization == Normalization::LayerNorm, "--normalization LayerNorm"},
       {!model.num_experts, "no --num-experts"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {!model.swiglu, "no --swiglu"}});
}

TensorNames starcoder2_names() {
  TensorNames names = llama_family().names;
  std::erase_if(names.in_block,
                [](const TensorNames::Entry& entry) { return entry.ours.starts_with("mlp."); });
  const TensorNames::Entry entries[] = {
      {"norm1.bias", {"input_layernorm.bias"}},   {"norm2.bias", {"post_attention_layernorm.bias"}},
      {"mlp.up.weight", {"mlp.c_fc.weight"}},     {"mlp.up.bias", {"mlp.c_fc.bias"}},
      {"mlp.down.weight", {"mlp.c_proj.weight"}}, {"mlp.down.bias", {"mlp.c_proj.bias"}}};
  for (const TensorNames::Entry& entry : entries) names.in_block.push_back(entry);
  names.outside.push_back({"final_norm.bias", {"norm.bias"}});
  return names;
}

}  // namespace

const HuggingFaceFamily& starcoder2_family() {
  static const HuggingFaceFamily kFamily{.name = "StarCoder2",
                                         .type = "starcoder2",
                                         .fields = starcoder2_fields(),
                                         .names = starcoder2_names(),
                                         .read = read_starcoder2,
                                         .write = starcoder2_json,
                                         .missing = starcoder2_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
