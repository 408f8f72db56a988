#include <fmt/format.h>

#include <algorithm>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr const char* kPairTensor = "cls.seq_relationship.weight";

ConfigFields bert_fields() {
  return joined(
      {{field({"vocab_size"}, 30522), field({"hidden_size"}, 768), field({"num_hidden_layers"}, 12),
        field({"num_attention_heads"}, 12), field({"intermediate_size"}, 3072), field({"hidden_act"}, "gelu"),
        field({"hidden_dropout_prob"}, 0.1), field({"attention_probs_dropout_prob"}, 0.1),
        field({"max_position_embeddings"}, 512), field({"type_vocab_size"}, 2),
        field({"initializer_range"}, 0.02), field({"layer_norm_eps"}, 1e-12), unused({"pad_token_id"}, 0),
        unused({"use_cache"}, true), field({"classifier_dropout"}, nullptr), fixed("is_decoder", false),
        fixed("add_cross_attention", false), unused({"bos_token_id"}), unused({"eos_token_id"}),
        fixed("tie_word_embeddings", true),
        // The base class has these.
        field({"architectures"}, nullptr), field({"id2label"}, nullptr), field({"problem_type"}, nullptr),
        field({"num_labels"}, 2).beyond_class(), fixed("position_embedding_type", "absolute").beyond_class()},
       {unused({"directionality"}).beyond_class(), unused({"pooler_fc_size"}).beyond_class(),
        unused({"pooler_num_attention_heads"}).beyond_class(),
        unused({"pooler_num_fc_layers"}).beyond_class(), unused({"pooler_size_per_head"}).beyond_class(),
        unused({"pooler_type"}).beyond_class()}});
}

// The names of classes 0, 1, ...; transformers' own where a file names none.
std::vector<std::string> class_names(ConfigReader& from) {
  std::vector<std::string> names;
  const json& given = from.value("id2label");
  const int64_t count = given.is_object() ? static_cast<int64_t>(given.size()) : from.size("num_labels");
  constexpr int64_t kMostClasses = 1 << 20;
  for (int64_t id = 0; id < std::min(count, kMostClasses); ++id) {
    const json name =
        given.is_object() ? given.value(std::to_string(id), json()) : json(fmt::format("LABEL_{}", id));
    if (!name.is_string()) {
      from.problem(fmt::format("'id2label' gives class {} no name", id));
      return names;
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

// A finetuned model names its task and its classes.
void read_task(ConfigReader& from, ModelConfig& model) {
  const json& kind = from.value("architectures");
  if (kind == json({"BertForQuestionAnswering"})) model.bert_head = HeadKind::Span;
  if (kind != json({"BertForSequenceClassification"})) return;
  model.bert_head = HeadKind::Classes;
  model.class_names = class_names(from);
  if (model.class_names.size() < 2)
    from.problem("one label means a regression, which has no output head here");
  const json& problem = from.value("problem_type");
  if (!problem.is_null() && problem != "single_label_classification")
    from.problem(fmt::format("'problem_type' is {}; only \"single_label_classification\" is supported",
                             printable_json(problem)));
}

ModelConfig read_bert(ConfigReader& from) {
  ModelConfig model = read_encoder(from);
  if (from.number_or_null("classifier_dropout").value_or(model.hidden_dropout) != model.hidden_dropout)
    from.problem("'classifier_dropout' and 'hidden_dropout_prob' differ; give both the same value");
  read_task(from, model);
  return model;
}

const char* bert_architecture(const ModelConfig& model) {
  if (model.bert_head == HeadKind::Classes) return "BertForSequenceClassification";
  if (model.bert_head == HeadKind::Span) return "BertForQuestionAnswering";
  return model.bert_no_binary_head ? "BertForMaskedLM" : "BertForPreTraining";
}

const char* bert_auto_class(const ModelConfig& model) {
  if (model.bert_head == HeadKind::Classes) return "SequenceClassification";
  if (model.bert_head == HeadKind::Span) return "QuestionAnswering";
  return model.bert_no_binary_head ? "MaskedLM" : "PreTraining";
}

json bert_json(const ModelConfig& model) {
  json config = encoder_json(model);
  config.update({{"architectures", {bert_architecture(model)}}, {"model_type", "bert"}});
  for (size_t id = 0; id < model.class_names.size(); ++id) {
    config["id2label"][std::to_string(id)] = model.class_names[id];
    config["label2id"][model.class_names[id]] = id;
  }
  return config;
}

std::vector<std::string> bert_misses(const ModelConfig& model) {
  return not_met(
      {{head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels"},
       {model.num_tokentypes > 0, "--num-tokentypes 2"}});
}

// The decoder repeats the embedding, a bias of answers would shift all positions alike, and older files hold unused
// poolers.
bool bert_ignores(const std::string& theirs, const ModelConfig& model) {
  const bool pools =
      model.bert_head == HeadKind::Classes || (!has_task_head(model) && !model.bert_no_binary_head);
  return theirs.starts_with("cls.predictions.decoder.") || theirs.ends_with("embeddings.position_ids") ||
         theirs == "qa_outputs.bias" || (!pools && theirs.find("pooler.dense.") != std::string::npos);
}

// Only models that predict words have the decoder.
std::vector<TiedTensors> bert_tied(const ModelConfig& model) {
  if (has_task_head(model)) return {};
  return {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
          {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
}

// The first files have other names for the two vectors of a norm.
TensorNames::Entry norm_part(std::string_view ours, std::string_view now, std::string_view then) {
  return {ours, {now}, false, {{then}}};
}

}  // namespace

ModelConfig read_encoder(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  model.model_type = ModelType::Bert;
  model.norm_epsilon = from.number("layer_norm_eps");
  model.hidden_dropout = from.number("hidden_dropout_prob");
  model.attention_dropout = from.number("attention_probs_dropout_prob");
  model.num_tokentypes = from.size("type_vocab_size");
  if (model.num_tokentypes != 1 && model.num_tokentypes != 2)
    from.problem(fmt::format("'type_vocab_size' is {}; only 1 and 2 are supported", model.num_tokentypes));
  read_gelu(from, "hidden_act", model);
  return model;
}

json encoder_json(const ModelConfig& model) {
  json config = sizes_json(model);
  config.update({{"hidden_act", gelu_name(model)},
                 {"type_vocab_size", model.num_tokentypes},
                 {"position_embedding_type", "absolute"},
                 {"layer_norm_eps", model.norm_epsilon},
                 {"hidden_dropout_prob", model.hidden_dropout},
                 {"attention_probs_dropout_prob", model.attention_dropout}});
  return config;
}

std::vector<std::string> masked_words_miss(const ModelConfig& model) {
  return not_met(
      {{head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels"},
       {!has_task_head(model), "a head that predicts masked tokens"},
       {has_task_head(model) || model.bert_no_binary_head, "--bert-no-binary-head"}});
}

void read_masked_words(ConfigReader& from, ModelConfig& model, const char* architecture) {
  model.bert_no_binary_head = true;
  const json& kinds = from.value("architectures");
  if (kinds.is_null() || kinds == json({architecture})) return;
  const json& shown = kinds.is_array() && kinds.size() == 1 ? kinds.front() : kinds;
  from.problem(
      fmt::format("'architectures' is {}; only \"{}\" is supported", printable_json(shown), architecture));
}

const HuggingFaceFamily& bert_family() {
  static const HuggingFaceFamily kFamily{
      "BERT",
      "bert",
      bert_fields(),
      {"bert.",
       "encoder.layer.",
       {{"attention.qkv.weight",
         {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"}},
        {"attention.qkv.bias",
         {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
        {"attention.out.weight", {"attention.output.dense.weight"}},
        {"attention.out.bias", {"attention.output.dense.bias"}},
        norm_part("norm1.gain", "attention.output.LayerNorm.weight", "attention.output.LayerNorm.gamma"),
        norm_part("norm1.bias", "attention.output.LayerNorm.bias", "attention.output.LayerNorm.beta"),
        {"mlp.up.weight", {"intermediate.dense.weight"}},
        {"mlp.up.bias", {"intermediate.dense.bias"}},
        {"mlp.down.weight", {"output.dense.weight"}},
        {"mlp.down.bias", {"output.dense.bias"}},
        norm_part("norm2.gain", "output.LayerNorm.weight", "output.LayerNorm.gamma"),
        norm_part("norm2.bias", "output.LayerNorm.bias", "output.LayerNorm.beta")},
       {{"embedding.tokens.weight", {"embeddings.word_embeddings.weight"}},
        {"embedding.positions.weight", {"embeddings.position_embeddings.weight"}},
        {"embedding.types.weight", {"embeddings.token_type_embeddings.weight"}},
        norm_part("embedding.norm.gain", "embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"),
        norm_part("embedding.norm.bias", "embeddings.LayerNorm.bias", "embeddings.LayerNorm.beta"),
        {"pooler.weight", {"pooler.dense.weight"}},
        {"pooler.bias", {"pooler.dense.bias"}}},
       {{"head.dense.weight", {"cls.predictions.transform.dense.weight"}},
        {"head.dense.bias", {"cls.predictions.transform.dense.bias"}},
        norm_part("head.norm.gain", "cls.predictions.transform.LayerNorm.weight",
                  "cls.predictions.transform.LayerNorm.gamma"),
        norm_part("head.norm.bias", "cls.predictions.transform.LayerNorm.bias",
                  "cls.predictions.transform.LayerNorm.beta"),
        {"head.bias", {"cls.predictions.bias"}},
        {"pair.weight", {kPairTensor}},
        {"pair.bias", {"cls.seq_relationship.bias"}},
        {"classes.weight", {"classifier.weight"}},
        {"classes.bias", {"classifier.bias"}},
        {"answer.weight", {"qa_outputs.weight"}}}},
      read_bert,
      bert_json,
      bert_misses,
      bert_ignores,
      bert_tied,
      bert_auto_class,
      kPairTensor,
      nullptr,
      false,
      ModelType::Bert};
  return kFamily;
}

}  // namespace trifold
