// GPT-2 and Llama: their blocks and data.
#include "config/subjects/text.h"
#include "core/error.h"
#include "models/gpt.h"
#include "models/language_family.h"
#include "text/corpus.h"
#include "text/synthetic.h"

namespace trifold {

namespace {

std::unique_ptr<Layer> make_gpt_embedding(BlockBuilder& builder, const ModelConfig& config,
                                          int64_t padded_vocab, const TokenParts& parts,
                                          std::vector<ParamId>& tokens) {
  auto embedding = std::make_unique<GptEmbedding>(builder, config, padded_vocab, parts);
  tokens = embedding->tokens();
  return embedding;
}

std::unique_ptr<Layer> make_gpt_layer(BlockBuilder& builder, const std::string& name,
                                      const TransformerShape& shape) {
  return std::make_unique<TransformerBlock>(builder, name, shape);
}

std::unique_ptr<Layer> make_gpt_head(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                     int64_t padded_vocab, int64_t chunk_rows,
                                     const std::optional<FurtherLayers>& further) {
  return std::make_unique<GptHead>(builder, config, tokens, padded_vocab, chunk_rows, further);
}

const char* gpt_head_rows(const ModelConfig& config) {
  return config.untie_embeddings_and_output_weights ? "head.weight" : nullptr;
}

std::unique_ptr<TrainingText> open_gpt_text(const ModelConfig& model, const DataConfig& data,
                                            DType /*sums*/) {
  if (const auto option = given_option_of_pairs(data))
    bad_input("--{} has no effect, because the model is not BERT", *option);
  return std::make_unique<Corpus>(data, *model.vocab_size);
}

}  // namespace

extern const LanguageFamily kGptParts;
constexpr LanguageFamily kGptParts{
    .type = ModelType::Gpt,
    .make_whole = nullptr,
    .make_embedding = make_gpt_embedding,
    .make_layer = make_gpt_layer,
    .make_head = make_gpt_head,
    .make_lookup = make_gpt_lookup,
    .make_head_part = make_gpt_head_part,
    .head_rows = gpt_head_rows,
    .read_sizes = nullptr,
    .check_micro_batch = nullptr,
    .vocabulary = [](const Tokenizer& tokenizer) { return tokenizer.vocab_size(); },
    .own_tokens = "",
    .pad_token = [](const Tokenizer&) { return std::optional<int32_t>(); },
    .open_text = open_gpt_text,
    .synthetic = [](const ModelConfig& model, uint64_t seed) -> std::unique_ptr<DataSource> {
      return std::make_unique<SyntheticTokens>(model.seq_length, *model.vocab_size, seed);
    }};

}  // namespace trifold
