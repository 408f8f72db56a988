// Checks of a configuration as a whole, and the values that follow from others: beside `problems` and
// `resolve` of each command (commands.h).
#pragma once

#include <optional>
#include <string>

#include "config/command_line/commands.h"
#include "config/fields/problem.h"

namespace trifold {

// The first option of documents in a sample that is given: to be refused where samples have none.
std::optional<std::string> given_option_of_documents(const DataConfig& data);

// The first option of BERT's pairs that has another value than its default: to be refused for other models.
std::optional<std::string> given_option_of_pairs(const DataConfig& data);

// Where a run stands: what it has done before.
struct RunPosition {
  int64_t steps = 0;
  int64_t consumed_samples = 0;
};

// For a resolved configuration with train_epochs: `samples` is what those passes give in all. Fills in
// train_samples and train_iters, and what follows from them: lr_decay_iters and async_window where they are
// not given. Throws like resolve.
PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from);

// "--adam-beta1 has no effect with --optimizer sgd: ..." for an option that only other optimizers use;
// nullopt for every other option.
std::optional<Problem> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer);

}  // namespace trifold
