// Runs that tests plan without training them.
#pragma once

#include <cstdint>
#include <utility>

#include "config/commands/validate.h"
#include "config/fields/config.h"

namespace trifold::test {

struct ModelSize {
  int64_t layers = 0, width = 0, heads = 0, length = 0, vocabulary = 0;
};

// A GPT of this size on `ranks` ranks, without a batch size, and with a plan's defaults for training.
inline PretrainConfig gpt_of(const ModelSize& size, int ranks = 1) {
  PretrainConfig run = PlanConfig().run;
  run.model.num_layers = size.layers;
  run.model.hidden_size = size.width;
  run.model.num_attention_heads = size.heads;
  run.model.seq_length = size.length;
  run.model.vocab_size = size.vocabulary;
  run.mesh.ranks = ranks;
  return run;
}

// A resolved plan of `run`.
inline PlanConfig plan_config(PretrainConfig run) {
  PlanConfig config;
  config.run = std::move(run);
  return resolve(std::move(config));
}

}  // namespace trifold::test
