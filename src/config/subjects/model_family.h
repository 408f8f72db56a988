// The properties of a model family that options and family-independent code need. Each family has a file of its own
// (family_<name>.cpp) and an entry in the table of model_family.cpp; nothing else tests a model's family. The blocks,
// data and names of families are in models/language_family.h.
#pragma once

#include <span>
#include <string_view>

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

struct ModelFamily {
  ModelType type;
  // The option that chooses the family, besides --model-type; empty: none.
  std::string_view chosen_by = {};
  // Each position attends to itself and earlier positions, and the model predicts the next token; otherwise every
  // position attends to all.
  bool causal;
  // Batches have sentence pairs, whose losses are weighted by the number of pairs in a whole step, counted before it
  // begins.
  bool has_pairs;
  // A layer ends with the norm of its sum, which backward needs (PartNorms::sum of models/transformer.h), unless the
  // model has norms of inputs or outputs (--pre-norm); see normalizes_sums.
  bool normalizes_sums;
  // The head has a dense layer of its own before the output layer.
  bool dense_in_head = false;
  // The output layer can be cut into parts (--pipeline-vocab-parts).
  bool cuts_head;
  // The encoder can be finetuned for a task (trifold finetune).
  bool has_tasks;
  // The model can be trained on tokenized data sets (.bin/.idx), not only on text.
  bool reads_token_files;
  // The data are text, not arrays (--arrays).
  bool reads_text = true;
  // What lengths and rates count ("9703 tokens/s"), and what a loss is a mean over.
  const char* unit = "tokens";
  const char* loss_unit = "tokens";
  // `excluded`: options of the model that the family excludes. `unused`: options of the model and its data without
  // effect in the family, with the reason and the remedy of their messages.
  std::span<const std::string_view> excluded;
  std::span<const std::string_view> unused;
  std::string_view unused_because;
  std::string_view unused_remedy;
};

const ModelFamily& family_of_model(const ModelConfig& config);
// Whether the model's layers normalize their sums.
bool normalizes_sums(const ModelConfig& config);
// The type of the family that an option chooses (ModelFamily::chosen_by).
ModelType type_of_family(std::string_view chosen_by);

// Adds the rules of all families to the options of a table.
void add_family_rules(OptionTable& table);

}  // namespace trifold
