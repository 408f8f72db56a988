// Checks of the data a run reads and of the checkpoints it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// The first given option about documents in a sample, if any; rejected where samples have no documents.
std::optional<std::string> given_option_of_documents(const DataConfig& data);

// The first option about BERT's sentence pairs that differs from its default, if any; rejected for other models.
std::optional<std::string> given_option_of_pairs(const DataConfig& data);

void check_tokenizer(std::optional<TokenizerType> type, const std::optional<std::string>& model,
                     Problems& problems);
void check_bad_records(OnBadRecord reaction, int64_t most, Problems& problems);
void check_data(const DataConfig& data, Problems& problems);
// A split of the data that `reader` reads must not have a share of 0; `options` are those that require the split.
void check_part(const DataConfig& data, Split split, const std::string& reader,
                std::vector<std::string> options, Problems& problems);
void check_checkpoint(const CheckpointConfig& config, Problems& problems);
// Checks the options that depend on evaluations; `evaluates`: the run evaluates while it trains.
void check_best(const CheckpointConfig& config, const std::optional<int64_t>& early_stop_patience,
                bool evaluates, Problems& problems);

}  // namespace trifold
