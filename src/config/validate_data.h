// Checks of the data a run reads and of the checkpoints it writes.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "config/problems.h"

namespace trifold {

void check_tokenizer(std::optional<TokenizerType> type, const std::optional<std::string>& model,
                     Problems& problems);
void check_data(const DataConfig& data, Problems& problems);
// `option` names the part of the data that is used: its share must not be 0.
void check_part(const DataConfig& data, Split split, const std::string& option, Problems& problems);
void check_checkpoint(const CheckpointConfig& config, Problems& problems);

}  // namespace trifold
