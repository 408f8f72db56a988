// BERT: its blocks, with the heads of tasks, and its data.
#include "config/subjects/text.h"
#include "core/error.h"
#include "models/bert_tasks.h"
#include "models/gpt.h"
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
  bert.scores.sight = AttentionSight::Both;
  return std::make_unique<TransformerBlock>(builder, name, bert);
}

std::unique_ptr<Layer> head_of_task(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                    int64_t padded_vocab, int64_t chunk_rows) {
  if (config.bert_head == HeadKind::Classes) return std::make_unique<ClassHead>(builder, config);
  if (config.bert_head == HeadKind::Span) return std::make_unique<SpanHead>(builder, config);
  return std::make_unique<BertHead>(builder, config, tokens, padded_vocab, !config.bert_no_binary_head,
                                    chunk_rows);
}

std::unique_ptr<Layer> make_bert_head(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                      int64_t padded_vocab, int64_t chunk_rows,
                                      const std::optional<FurtherLayers>& /*further*/) {
  if (!config.pre_norm) return head_of_task(builder, config, tokens, padded_vocab, chunk_rows);
  Norm norm(builder, "final_norm", config.hidden_size, norm_form(config));
  return std::make_unique<NormedHead>(std::move(norm),
                                      head_of_task(builder, config, tokens, padded_vocab, chunk_rows));
}

const char* bert_head_rows(const ModelConfig& config) {
  return has_task_head(config) ? nullptr : "head.bias";
}

std::unique_ptr<TrainingText> open_bert_text(const ModelConfig& model, const DataConfig& data,
                                             DType /*sums*/) {
  if (const auto option = given_option_of_documents(data))
    bad_input("--{} has no effect: the model is BERT, whose samples are pairs of sentences", *option);
  return std::make_unique<BertCorpus>(data, *model.vocab_size, !model.bert_no_binary_head);
}

}  // namespace

extern const LanguageFamily kBertParts;
constexpr LanguageFamily kBertParts{
    .type = ModelType::Bert,
    .make_whole = nullptr,
    .make_embedding = make_bert_embedding,
    .make_layer = make_bert_layer,
    .make_head = make_bert_head,
    .make_lookup = nullptr,
    .make_head_part = nullptr,
    .head_rows = bert_head_rows,
    .read_sizes = nullptr,
    .check_micro_batch = nullptr,
    .vocabulary = bert_vocabulary,
    .own_tokens = " (with BERT's own tokens)",
    .pad_token = [](const Tokenizer& tokenizer) -> std::optional<int32_t> {
      return BertTokens(tokenizer).pad;
    },
    .open_text = open_bert_text,
    .synthetic = [](const ModelConfig& model, uint64_t seed) -> std::unique_ptr<DataSource> {
      return std::make_unique<SyntheticPairs>(model.seq_length, *model.vocab_size, seed);
    }};

}  // namespace trifold
