// Checks of the data a run reads and of the checkpoints it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "config/fields/problems.h"

namespace trifold {

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
