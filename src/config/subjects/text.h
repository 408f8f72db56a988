// Text to train on: files, tokenizers, documents in a sample, pairs of sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// The options that name a tokenizer; commands differ in the defaults. They decide how text becomes tokens, and a
// checkpoint stores them.
void add_tokenizer(OptionTable& table, DataConfig& data);
// Copies the values of these options.
void copy_tokenizer(const DataConfig& from, DataConfig& to);
// The template for conversations, for commands that render them. It belongs to the tokenizer: a checkpoint stores it and
// copy_tokenizer copies it.
void add_chat_template(OptionTable& table, DataConfig& data);
// The treatment of special tokens in the texts of a command.
void add_special_tokens_in_text(OptionTable& table, DataConfig& data);
// Both for commands that read a checkpoint, which may name its tokenizer.
void add_tokenizer_of_model(OptionTable& table, DataConfig& data);
void add_bad_records(OptionTable& table, Field reaction, Field most);
void add_data(OptionTable& table, DataConfig& data);
// Data of training alone that replace --data-path: random tokens, and data of each part.
void add_other_data(OptionTable& table, DataConfig& data);
// Weights of --data-path that change during a run.
void add_data_schedule(OptionTable& table, DataConfig& data);
void add_documents(OptionTable& table, DataConfig& data);
void add_pairs(OptionTable& table, DataConfig& data);

// The first given option about documents in a sample, if any; rejected if samples have no documents.
std::optional<std::string> given_option_of_documents(const DataConfig& data);
// The first option about BERT's sentence pairs that differs from its default, if any; rejected for other models.
std::optional<std::string> given_option_of_pairs(const DataConfig& data);

void check_data(const DataConfig& data, Problems& problems);
// Checks that the split which `reader` reads has a share above 0; `options` are the options that require the split.
void check_part(const DataConfig& data, Split split, const std::string& reader,
                std::vector<std::string> options, Problems& problems);

}  // namespace trifold
