// BERT: its blocks, with the heads of tasks, its data and names.
#include "config/subjects/text.h"
#include "core/error.h"
#include "models/bert_tasks.h"
#include "models/language_family.h"
#include "tasks/bert_samples.h"
#include "text/synthetic.h"

namespace trifold {

namespace {

std::unique_ptr<Layer> make_bert_embedding(BlockBuilder& builder, const ModelConfig& config,
                                           int64_t padded_vocab, const TokenParts& /*parts*/,
                                           std::vector<ParamId>& tokens) {
  auto embedding = std::make_unique<BertEmbedding>(builder, config, padded_vocab);
  tokens = embedding->tokens();
  return embedding;
}

std::unique_ptr<Layer> make_bert_layer(BlockBuilder& builder, const std::string& name,
                                       const TransformerShape& shape) {
  TransformerShape bert = shape;
  bert.order = NormOrder::AfterSum;
  bert.sight = AttentionSight::Both;
  return std::make_unique<TransformerBlock>(builder, name, bert);
}

std::unique_ptr<Layer> make_bert_head(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                      int64_t padded_vocab, int64_t chunk_rows) {
  if (config.bert_head == HeadKind::Classes) return std::make_unique<ClassHead>(builder, config);
  if (config.bert_head == HeadKind::Span) return std::make_unique<SpanHead>(builder, config);
  return std::make_unique<BertHead>(builder, config, tokens, padded_vocab, !config.bert_no_binary_head,
                                    chunk_rows);
}

const char* bert_head_rows(const ModelConfig& config) {
  return has_task_head(config) ? nullptr : "head.bias";
}

// The pooler's few rows are ignored; a task's head has nothing but these, or two columns.
double bert_head_cost(const ModelConfig& config, int64_t padded_vocab) {
  if (has_task_head(config)) return 4.0 * static_cast<double>(config.seq_length * config.hidden_size);
  const int64_t columns = padded_vocab + config.hidden_size;
  return 2.0 * static_cast<double>(config.seq_length * config.hidden_size * columns);
}

// In addition to the products with the vocabulary: the dense layer, the pooler and classifier on one row per sample,
// and the two columns of a span head.
BlockFlops bert_head_flops(const ModelConfig& config, int64_t padded_vocab) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto rows = static_cast<double>(config.seq_length);
  const auto layer = [](double each) { return BlockFlops{each, each, each}; };
  const auto pooled = [&](double classes) { return 2 * c * c + 2 * c * classes; };
  if (config.bert_head == HeadKind::Classes)
    return layer(pooled(static_cast<double>(config.class_names.size())));
  if (config.bert_head == HeadKind::Span) return layer(2 * rows * c * 2);
  BlockFlops flops = layer(2 * rows * c * c + (config.bert_no_binary_head ? 0 : pooled(2)));
  flops.forward += flops_of_vocabulary_loss(config, padded_vocab);
  return flops;
}

std::unique_ptr<TrainingText> open_bert_text(const ModelConfig& model, const DataConfig& data) {
  if (const auto option = given_option_of_documents(data))
    bad_input("--{} has no effect: the model is BERT, whose samples are pairs of sentences", *option);
  return std::make_unique<BertCorpus>(data, *model.vocab_size, !model.bert_no_binary_head);
}

const HuggingFaceFamily& bert_names(const ModelConfig&) { return bert_family(); }

}  // namespace

extern const LanguageFamily kBertParts;
constexpr LanguageFamily kBertParts{
    .type = ModelType::Bert,
    .make_embedding = make_bert_embedding,
    .make_layer = make_bert_layer,
    .make_head = make_bert_head,
    .make_lookup = nullptr,
    .make_head_part = nullptr,
    .head_rows = bert_head_rows,
    .head_cost = bert_head_cost,
    .head_flops = bert_head_flops,
    .vocabulary = bert_vocabulary,
    .own_tokens = " (with BERT's own tokens)",
    .pad_token = [](const Tokenizer& tokenizer) -> std::optional<int32_t> {
      return BertTokens(tokenizer).pad;
    },
    .open_text = open_bert_text,
    .synthetic = [](const ModelConfig& model, uint64_t seed) -> std::unique_ptr<DataSource> {
      return std::make_unique<SyntheticPairs>(model.seq_length, *model.vocab_size, seed);
    },
    .hugging_face = bert_names};

}  // namespace trifold
