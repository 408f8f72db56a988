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
void check_data(const DataConfig& data, Problems& problems);
// The share of a part of the data that `reader` reads must not be 0; `options` are those that ask for it.
void check_part(const DataConfig& data, Split split, const std::string& reader,
                std::vector<std::string> options, Problems& problems);
void check_checkpoint(const CheckpointConfig& config, Problems& problems);
// What evaluations decide, of a run that makes them while it trains, or makes none: `evaluates`.
void check_best(const CheckpointConfig& config, const std::optional<int64_t>& early_stop_patience,
                bool evaluates, Problems& problems);

}  // namespace trifold
