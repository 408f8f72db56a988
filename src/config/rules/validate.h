// Checks of a configuration as a whole and derived values, in addition to `problems` and `resolve` of each command
// (commands.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line/commands.h"
#include "config/fields/problem.h"

namespace trifold {

// The first given option about documents in a sample, if any; rejected where samples have no documents.
std::optional<std::string> given_option_of_documents(const DataConfig& data);

// The first option about BERT's sentence pairs that differs from its default, if any; rejected for other models.
std::optional<std::string> given_option_of_pairs(const DataConfig& data);

// Progress of a run that is resumed.
struct RunPosition {
  int64_t steps = 0;
  int64_t consumed_samples = 0;
};

// For a resolved configuration with train_epochs: `samples` is the total over those passes. Fills in train_samples and
// train_iters, and from them lr_decay_iters and async_window if they are not given. Throws like resolve.
PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from);

// The problems with the model and the precision of a recommender. A run that loads a checkpoint takes options that were
// not given from it (inherit_model in fields/json.h), so `problems` leaves these checks out for a configuration with
// --load or --auto-resume, and callers make them when they know what the run begins with.
std::vector<Problem> model_problems(const RecommendConfig& config);

// "--adam-beta1 has no effect with --optimizer sgd: ..." for an option that only other optimizers use, else nullopt.
std::optional<Problem> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer);

}  // namespace trifold
