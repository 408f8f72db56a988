// Granite: a Llama with factors of the embedding, of scores, of what layers add to the residual stream, and of logits.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields granite_fields() {
  return joined(
      {{field({"vocab_size"}, 32000), field({"hidden_size"}, 4096), field({"intermediate_size"}, 11008),
        field({"num_hidden_layers"}, 32), field({"num_attention_heads"}, 32),
        field({"num_key_value_heads"}, nullptr), field({"max_position_embeddings"}, 2048),
        field({"rms_norm_eps"}, 1e-6), unused({"bos_token_id"}, 1), unused({"eos_token_id"}, 2),
        field({"attention_bias"}, false), field({"mlp_bias"}, false), field({"embedding_multiplier"}, 1.0),
        field({"logits_scaling"}, 1.0), field({"residual_multiplier"}, 1.0),
        field({"attention_multiplier"}, 1.0), field({"head_dim"}, nullptr).beyond_class(),
        unused({"pretraining_tp"}).beyond_class()},
       decoder_fields()});
}

ModelConfig read_granite(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_biases(from, model);
  read_rope(from, model);
  set_softmax_scale(model, from.number("attention_multiplier"));
  model.embedding_multiplier = from.number("embedding_multiplier");
  model.residual_multiplier = from.number("residual_multiplier");
  model.logits_scaling = from.number("logits_scaling");
  return model;
}

json granite_json(const ModelConfig& model) {
  json config = llama_json(model);
  write_head_width_if_odd(config, model);
  config.update({{"architectures", {"GraniteForCausalLM"}},
                 {"model_type", "granite"},
                 {"attention_multiplier", softmax_scale(model)},
                 {"embedding_multiplier", model.embedding_multiplier},
                 {"residual_multiplier", model.residual_multiplier},
                 {"logits_scaling", model.logits_scaling}});
  return config;
}

}  // namespace

const HuggingFaceFamily& granite_family() {
  static const HuggingFaceFamily kFamily{.name = "Granite",
                                         .type = "granite",
                                         .fields = granite_fields(),
                                         .names = llama_family().names,
                                         .read = read_granite,
                                         .write = granite_json,
                                         .missing = llama_family().missing,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
