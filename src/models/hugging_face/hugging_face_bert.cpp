#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr const char* kPairTensor = "cls.seq_relationship.weight";

// A finetuned model names its task and its classes; the default is two unnamed classes.
void read_task(ConfigReader& from, ModelConfig& model) {
  const json kind = from.has("architectures") ? from.at("architectures") : json::array();
  if (kind == json({"BertForQuestionAnswering"})) model.bert_head = HeadKind::Span;
  if (kind != json({"BertForSequenceClassification"})) return;
  model.bert_head = HeadKind::Classes;
  const json names = from.has("id2label") ? from.at("id2label") : json{{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  for (size_t id = 0; names.is_object() && id < names.size(); ++id) {
    const json name = names.value(std::to_string(id), json());
    if (!name.is_string()) return from.problem(fmt::format("'id2label' gives class {} no name", id));
    model.class_names.push_back(name.get<std::string>());
  }
  if (model.class_names.size() < 2)
    from.problem("one label means a regression, which has no output head here");
  from.must_be("problem_type", {"single_label_classification"}, "single_label_classification");
}

ModelConfig read_bert(ConfigReader& from) {
  ModelConfig model;
  model.model_type = ModelType::Bert;
  model.num_layers = from.size("num_hidden_layers", 12);
  model.hidden_size = from.size("hidden_size", 768);
  model.num_attention_heads = from.size("num_attention_heads", 12);
  model.ffn_hidden_size = from.size("intermediate_size", 3072);
  model.max_position_embeddings = from.size("max_position_embeddings", 512);
  model.vocab_size = from.size("vocab_size", 30522);
  model.norm_epsilon = from.number("layer_norm_eps", 1e-12);
  model.init_method_std = from.number("initializer_range", 0.02);
  model.hidden_dropout = from.number("hidden_dropout_prob", 0.1);
  model.attention_dropout = from.number("attention_probs_dropout_prob", 0.1);
  if (from.number("classifier_dropout", model.hidden_dropout) != model.hidden_dropout)
    from.problem("'classifier_dropout' and 'hidden_dropout_prob' differ; give both the same value");
  read_gelu(from, "hidden_act", "gelu", model);
  read_task(from, model);
  from.must_be("type_vocab_size", {2}, 2);
  from.must_be("position_embedding_type", {"absolute"}, "absolute");
  from.must_be("tie_word_embeddings", {true}, true);
  from.must_be("is_decoder", {false}, false);
  from.must_be("add_cross_attention", {false}, false);
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
  json config{{"architectures", {bert_architecture(model)}},
              {"model_type", "bert"},
              {"hidden_act", gelu_name(model)},
              {"num_hidden_layers", model.num_layers},
              {"hidden_size", model.hidden_size},
              {"num_attention_heads", model.num_attention_heads},
              {"intermediate_size", *model.ffn_hidden_size},
              {"max_position_embeddings", *model.max_position_embeddings},
              {"type_vocab_size", 2},
              {"position_embedding_type", "absolute"},
              {"layer_norm_eps", model.norm_epsilon},
              {"hidden_dropout_prob", model.hidden_dropout},
              {"attention_probs_dropout_prob", model.attention_dropout}};
  for (size_t id = 0; id < model.class_names.size(); ++id) {
    config["id2label"][std::to_string(id)] = model.class_names[id];
    config["label2id"][model.class_names[id]] = id;
  }
  return config;
}

std::vector<std::string> bert_misses(const ModelConfig& model) {
  return not_met(
      {{head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels"}});
}

// The decoder repeats the embedding, a bias of answers would shift all positions alike, and older files hold unused
// poolers.
bool bert_ignores(const std::string& theirs, const ModelConfig& model) {
  const bool pools =
      model.bert_head == HeadKind::Classes || (!has_task_head(model) && !model.bert_no_binary_head);
  return theirs.starts_with("cls.predictions.decoder.") || theirs.ends_with("embeddings.position_ids") ||
         theirs == "qa_outputs.bias" || (!pools && theirs.find("pooler.dense.") != std::string::npos);
}

}  // namespace

const HuggingFaceFamily& bert_family() {
  static const HuggingFaceFamily kFamily{
      "BERT",
      "bert",
      {"bert.",
       "encoder.layer.",
       {{"attention.qkv.weight",
         {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"}},
        {"attention.qkv.bias",
         {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
        {"attention.out.weight", {"attention.output.dense.weight"}},
        {"attention.out.bias", {"attention.output.dense.bias"}},
        {"norm1.gain", {"attention.output.LayerNorm.weight"}},
        {"norm1.bias", {"attention.output.LayerNorm.bias"}},
        {"mlp.up.weight", {"intermediate.dense.weight"}},
        {"mlp.up.bias", {"intermediate.dense.bias"}},
        {"mlp.down.weight", {"output.dense.weight"}},
        {"mlp.down.bias", {"output.dense.bias"}},
        {"norm2.gain", {"output.LayerNorm.weight"}},
        {"norm2.bias", {"output.LayerNorm.bias"}}},
       {{"embedding.tokens.weight", {"embeddings.word_embeddings.weight"}},
        {"embedding.positions.weight", {"embeddings.position_embeddings.weight"}},
        {"embedding.types.weight", {"embeddings.token_type_embeddings.weight"}},
        {"embedding.norm.gain", {"embeddings.LayerNorm.weight"}},
        {"embedding.norm.bias", {"embeddings.LayerNorm.bias"}},
        {"pooler.weight", {"pooler.dense.weight"}},
        {"pooler.bias", {"pooler.dense.bias"}}},
       {{"head.dense.weight", {"cls.predictions.transform.dense.weight"}},
        {"head.dense.bias", {"cls.predictions.transform.dense.bias"}},
        {"head.norm.gain", {"cls.predictions.transform.LayerNorm.weight"}},
        {"head.norm.bias", {"cls.predictions.transform.LayerNorm.bias"}},
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
      bert_auto_class,
      kPairTensor};
  return kFamily;
}

}  // namespace trifold
