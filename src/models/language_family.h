// LanguageFamily describes one family of language models: its blocks, data and vocabulary. Each family has a file
// (family_<name>.cpp) and an entry in the table of language_family.cpp; its options and their rules are in
// config/subjects/model_family.h. Nothing else tests a model's family (tools/count_model_kinds.py), except that a family
// of Hugging Face names the one of its models (models/hugging_face).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "data/batch.h"
#include "models/gpt.h"
#include "models/model.h"
#include "models/transformer.h"
#include "tensor_parallel/vocab.h"
#include "tensor_parallel/vocab_part.h"
#include "text/training_text.h"
#include "tokenize/tokenizer.h"

namespace trifold {

struct LanguageFamily {
  ModelType type;

  // ---- Blocks, assembled by make_model ----

  // Makes the whole model. Null if its blocks are an embedding, layers and a head, which the functions below make.
  Model (*make_whole)(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout);
  // Makes the embedding, whose table has several parts only if the head has (tensor_parallel/vocab.h). `tokens`
  // receives the parameters of the embedding's parts.
  std::unique_ptr<Layer> (*make_embedding)(BlockBuilder& builder, const ModelConfig& config,
                                           int64_t padded_vocab, const TokenParts& parts,
                                           std::vector<ParamId>& tokens);
  std::unique_ptr<Layer> (*make_layer)(BlockBuilder& builder, const std::string& name,
                                       const TransformerShape& shape);
  // `chunk_rows` as in VocabCrossEntropy; `further` if the model has modules that predict further tokens.
  std::unique_ptr<Layer> (*make_head)(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                      int64_t padded_vocab, int64_t chunk_rows,
                                      const std::optional<FurtherLayers>& further);
  // Make a block before the embedding that looks up the tokens of some parts, and a part of a head that is cut over the
  // vocabulary. Null if the family's head cannot be cut.
  std::unique_ptr<Layer> (*make_lookup)(BlockBuilder& builder, const ModelConfig& config,
                                        int64_t padded_vocab, const TokenParts& parts,
                                        std::vector<ParamId>& tokens);
  std::unique_ptr<Layer> (*make_head_part)(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                           int64_t padded_vocab, PartIndex part);
  // The name of a parameter of the head, other than the output weight, that has a row for each token; null: none.
  const char* (*head_rows)(const ModelConfig& config);

  // ---- Data ----

  // Sets the sizes of a model that is in a file, its checksum and its absolute path; null if the options give the sizes.
  void (*read_sizes)(ModelConfig& model);
  // BadInput, naming --micro-batch-size, if the model cannot compute so many samples at once; null: it can.
  void (*check_micro_batch)(const ModelConfig& model, int64_t samples);
  // The vocabulary size that a model with this tokenizer needs, and the words by which messages explain tokens that the
  // tokenizer does not have.
  int64_t (*vocabulary)(const Tokenizer& tokenizer);
  const char* own_tokens;
  // The padding token, if the family has one.
  std::optional<int32_t> (*pad_token)(const Tokenizer& tokenizer);
  // Opens the training text; the vocabulary of `model` must be known. BadInput for every mistake in the files, and for
  // options that do not apply to the family.
  // `sums`: the type in which the run sums, F32 or F64.
  std::unique_ptr<TrainingText> (*open_text)(const ModelConfig& model, const DataConfig& data, DType sums);
  std::unique_ptr<DataSource> (*synthetic)(const ModelConfig& model, uint64_t seed);
};

const LanguageFamily& language_family(const ModelConfig& config);

// Synthetic samples for the model.
std::unique_ptr<DataSource> synthetic_data(const ModelConfig& model, uint64_t seed);

}  // namespace trifold
