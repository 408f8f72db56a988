// The generator of ELECTRA: a BERT without pairs of sentences, whose embedding and output layer are narrower than its
// layers. The discriminator, whose head tells replaced tokens from others, is not supported.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr const char* kElectraGenerator = "ElectraForMaskedLM";

ConfigFields electra_fields() {
  return {field({"vocab_size"}, 30522),
          field({"embedding_size"}, 128),
          field({"hidden_size"}, 256),
          field({"num_hidden_layers"}, 12),
          field({"num_attention_heads"}, 4),
          field({"intermediate_size"}, 1024),
          field({"hidden_act"}, "gelu"),
          field({"hidden_dropout_prob"}, 0.1),
          field({"attention_probs_dropout_prob"}, 0.1),
          field({"max_position_embeddings"}, 512),
          field({"type_vocab_size"}, 2),
          field({"initializer_range"}, 0.02),
          field({"layer_norm_eps"}, 1e-12),
          unused({"summary_type"}, "first"),
          unused({"summary_use_proj"}, true),
          unused({"summary_activation"}, "gelu"),
          unused({"summary_last_dropout"}, 0.1),
          unused({"pad_token_id"}, 0),
          unused({"use_cache"}, true),
          unused({"classifier_dropout"}),
          fixed("is_decoder", false),
          fixed("add_cross_attention", false),
          unused({"bos_token_id"}),
          unused({"eos_token_id"}),
          fixed("tie_word_embeddings", true),
          field({"architectures"}, nullptr),  // the base class has it
          fixed("position_embedding_type", "absolute").beyond_class()};
}

ModelConfig read_electra(ConfigReader& from) {
  ModelConfig model = read_encoder(from);
  read_masked_words(from, model, kElectraGenerator);
  if (model.gelu != GeluKind::Erf)
    from.problem("'hidden_act' is not \"gelu\", which the head always has; only \"gelu\" is supported");
  const int64_t width = from.size("embedding_size");
  if (width != model.hidden_size) model.embedding_size = width;
  return model;
}

json electra_json(const ModelConfig& model) {
  json config = encoder_json(model);
  config.update({{"architectures", {kElectraGenerator}},
                 {"model_type", "electra"},
                 {"embedding_size", embedding_width(model)}});
  return config;
}

std::vector<std::string> electra_misses(const ModelConfig& model) {
  return not_met(
      {{model.num_tokentypes > 0, "--num-tokentypes 2"}, {model.gelu == GeluKind::Erf, "--gelu erf"}},
      masked_words_miss(model));
}

// The output layer repeats the embedding, and older files hold computed positions.
bool electra_ignores(const std::string& theirs, const ModelConfig&) {
  return theirs == "generator_lm_head.weight" || theirs.ends_with("embeddings.position_ids");
}

TensorNames electra_names() {
  TensorNames names = bert_family().names;
  names.prefix = "electra.";
  std::erase_if(names.outside,
                [](const TensorNames::Entry& entry) { return entry.ours.starts_with("pooler."); });
  names.outside.push_back({"embedding.projection.weight", {"embeddings_project.weight"}});
  names.outside.push_back({"embedding.projection.bias", {"embeddings_project.bias"}});
  names.head = {{"head.dense.weight", {"generator_predictions.dense.weight"}},
                {"head.dense.bias", {"generator_predictions.dense.bias"}},
                {"head.norm.gain", {"generator_predictions.LayerNorm.weight"}},
                {"head.norm.bias", {"generator_predictions.LayerNorm.bias"}},
                {"head.bias", {"generator_lm_head.bias"}}};
  return names;
}

}  // namespace

const HuggingFaceFamily& electra_family() {
  static const HuggingFaceFamily kFamily{
      .name = "ELECTRA",
      .type = "electra",
      .fields = electra_fields(),
      .names = electra_names(),
      .read = read_electra,
      .write = electra_json,
      .missing = electra_misses,
      .ignores = electra_ignores,
      .tied = [](const ModelConfig&) -> std::vector<TiedTensors> {
        return {{"generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"}};
      },
      .auto_class = [](const ModelConfig&) { return "MaskedLM"; },
      .may_untie = false,
      .model = ModelType::Bert};
  return kFamily;
}

}  // namespace trifold
