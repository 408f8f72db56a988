// Opens the model of a checkpoint to sample from it, for `generate` and `serve`.
#pragma once

#include <optional>
#include <string>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "run/ranks.h"
#include "tokenize/tokenizer.h"
#include "train/sampling/sampler.h"
#include "train/start/checkpoint_model.h"

namespace trifold::launch {

struct SampledModel {
  const CheckpointModel& checkpoint;
  const Tokenizer& tokenizer;
  Sampler& sampler;
};

// How a model is held to be sampled from.
struct SampledPlace {
  int tensor_ranks = 1;        // threads of this process
  std::optional<int> threads;  // compute threads of each; by default they share all cores
  Caching caching = Caching::KeysAndValues;
  std::optional<DType> dtype;  // computed in; by default that of the weights
  bool averages = false;       // take the exponential averages of the weights
};

// Loads the checkpoint `load`, calls body(model) on the first rank, whose sampler the others follow, and frees the model.
// The tokenizer is the one that `data` names, or else the checkpoint's. BadInput if there is none, if the model cannot
// continue a text, or if it cannot be cut over the ranks.
void with_sampled_model(const std::string& load, const DataConfig& data, const SampledPlace& place,
                        Ranks& ranks, FunctionRef<void(const SampledModel&)> body);

// "36.0 MiB of keys and values for 1024 tokens", or why there are none.
std::string cache_line(const Sampler& sampler);

}  // namespace trifold::launch
