// RoBERTa and XLM-R: BERT without pairs of sentences, with a head of its own. A token's position counts from the row
// after that of padding.
#include <fmt/format.h>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

ConfigFields roberta_fields(int64_t vocabulary) {
  return {field({"vocab_size"}, vocabulary),
          field({"hidden_size"}, 768),
          field({"num_hidden_layers"}, 12),
          field({"num_attention_heads"}, 12),
          field({"intermediate_size"}, 3072),
          field({"hidden_act"}, "gelu"),
          field({"hidden_dropout_prob"}, 0.1),
          field({"attention_probs_dropout_prob"}, 0.1),
          field({"max_position_embeddings"}, 512),
          field({"type_vocab_size"}, 2),
          field({"initializer_range"}, 0.02),
          field({"layer_norm_eps"}, 1e-12),
          field({"pad_token_id"}, 1),
          unused({"bos_token_id"}, 0),
          unused({"eos_token_id"}, 2),
          unused({"use_cache"}, true),
          unused({"classifier_dropout"}),
          fixed("is_decoder", false),
          fixed("add_cross_attention", false),
          fixed("tie_word_embeddings", true),
          field({"architectures"}, nullptr),  // the base class has it
          fixed("position_embedding_type", "absolute").beyond_class(),
          unused({"output_past"}).beyond_class()};
}

ModelConfig read_roberta(ConfigReader& from, const char* architecture) {
  ModelConfig model = read_encoder(from);
  read_masked_words(from, model, architecture);
  if (model.gelu != GeluKind::Erf)
    from.problem("'hidden_act' is not \"gelu\", which the head always has; only \"gelu\" is supported");
  const int64_t rows = *model.max_position_embeddings, padding = from.size("pad_token_id");
  if (padding < 0 || padding >= *model.vocab_size) {
    from.problem(fmt::format("'pad_token_id' is {}; a token below 'vocab_size', {}, is needed", padding,
                             *model.vocab_size));
  } else if (padding + 1 >= rows) {
    from.problem(fmt::format(
        "'max_position_embeddings' is {}, but positions begin after row 'pad_token_id', {}; give a larger one",
        rows, padding));
  } else {
    model.position_embedding_offset = padding + 1;
    model.max_position_embeddings = rows - model.position_embedding_offset;
  }
  return model;
}

json roberta_json(const ModelConfig& model, const char* type, const char* architecture) {
  json config = encoder_json(model);
  config.update(
      {{"architectures", {architecture}},
       {"model_type", type},
       {"max_position_embeddings", *model.max_position_embeddings + model.position_embedding_offset},
       {"pad_token_id", model.position_embedding_offset - 1}});
  return config;
}

std::vector<std::string> roberta_misses(const ModelConfig& model) {
  return not_met({{model.position_embedding_offset > 0, "--position-embedding-offset 2"},
                  {model.num_tokentypes > 0, "--num-tokentypes 1"},
                  {model.gelu == GeluKind::Erf, "--gelu erf"}},
                 masked_words_miss(model));
}

// The decoder repeats the embedding, and older files hold computed positions and an unused pooler.
bool roberta_ignores(const std::string& theirs, const ModelConfig&) {
  return theirs.starts_with("lm_head.decoder.") || theirs.ends_with("embeddings.position_ids") ||
         theirs.find("pooler.dense.") != std::string::npos;
}

std::vector<TiedTensors> roberta_tied(const ModelConfig&) {
  return {{"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
          {"lm_head.decoder.bias", "lm_head.bias"}};
}

TensorNames roberta_names() {
  TensorNames names = bert_family().names;
  names.prefix = "roberta.";
  names.head = {{"head.dense.weight", {"lm_head.dense.weight"}},
                {"head.dense.bias", {"lm_head.dense.bias"}},
                {"head.norm.gain", {"lm_head.layer_norm.weight"}},
                {"head.norm.bias", {"lm_head.layer_norm.bias"}},
                {"head.bias", {"lm_head.bias"}}};
  return names;
}

const char* roberta_class(const ModelConfig&) { return "MaskedLM"; }

}  // namespace

const HuggingFaceFamily& roberta_family() {
  constexpr int64_t kVocabulary = 50265;
  static const HuggingFaceFamily kFamily{
      .name = "RoBERTa",
      .type = "roberta",
      .fields = roberta_fields(kVocabulary),
      .names = roberta_names(),
      .read = [](ConfigReader& from) { return read_roberta(from, "RobertaForMaskedLM"); },
      .write = [](const ModelConfig& model) { return roberta_json(model, "roberta", "RobertaForMaskedLM"); },
      .missing = roberta_misses,
      .ignores = roberta_ignores,
      .tied = roberta_tied,
      .auto_class = roberta_class,
      .may_untie = false,
      .model = ModelType::Bert};
  return kFamily;
}

const HuggingFaceFamily& xlm_roberta_family() {
  constexpr int64_t kVocabulary = 30522;
  static const HuggingFaceFamily kFamily{
      .name = "XLM-R",
      .type = "xlm-roberta",
      .fields = roberta_fields(kVocabulary),
      .names = roberta_names(),
      .read = [](ConfigReader& from) { return read_roberta(from, "XLMRobertaForMaskedLM"); },
      .write =
          [](const ModelConfig& model) {
            return roberta_json(model, "xlm-roberta", "XLMRobertaForMaskedLM");
          },
      .missing = roberta_misses,
      .ignores = roberta_ignores,
      .tied = roberta_tied,
      .auto_class = roberta_class,
      .may_untie = false,
      .model = ModelType::Bert};
  return kFamily;
}

}  // namespace trifold
