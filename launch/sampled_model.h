// Opens the model of a checkpoint to sample from it, for `generate` and `serve`.
#pragma once

#include <optional>
#include <string>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "run/ranks.h"
#include "tokenize/tokenizer.h"
#include "train/checkpoint_model.h"
#include "train/sampling/sampler.h"

namespace trifold::launch {

struct SampledModel {
  const CheckpointModel& checkpoint;
  const Tokenizer& tokenizer;
  Sampler& sampler;
};

// Loads the checkpoint `load` on one rank with `threads` compute threads (by default all cores), calls body(model) and
// frees the model. The tokenizer is the one that `data` names, or else the checkpoint's. BadInput if there is none, or
// if the model cannot continue a text. With `averages` the model has the exponential averages of its weights.
void with_sampled_model(const std::string& load, const DataConfig& data, std::optional<int> threads,
                        Ranks& ranks, FunctionRef<void(const SampledModel&)> body, bool averages = false);

}  // namespace trifold::launch
