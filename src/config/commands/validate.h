// Further checks and derived values of configurations, besides `problems` and `resolve` of each command (commands.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/commands/commands.h"
#include "config/options/problem.h"

namespace trifold {

// The progress of a resumed run.
struct RunPosition {
  int64_t steps = 0;
  int64_t consumed_samples = 0;
};

// Completes a resolved configuration with train_epochs, whose passes have `samples` samples in total: sets
// train_samples and train_iters, and from them lr_decay_iters and async_window if they are not given. Throws like
// resolve.
PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from);

// The model as its options give it: without the sizes that `resolve` fills in for a model in a file, which exclude
// --model if they are given.
ModelConfig without_sizes_of_file(ModelConfig model);

// The problems with the model and the precision of a recommender. A run that loads a checkpoint takes options that were
// not given from it (inherit_model in commands/json.h). `problems` therefore omits these checks for a configuration
// with --load or --auto-resume, and callers make them once the checkpoint is known.
std::vector<Problem> model_problems(const RecommendConfig& config);

}  // namespace trifold
