// What follows from the family of a model, in one table: for code that works with every family and must not
// ask which one it has.
#pragma once

#include "config/config.h"

namespace trifold {

struct ModelFamily {
  ModelType type;
  // A position sees itself and those before it, and the model guesses what comes next; otherwise all see all.
  bool causal;
  // Its batches have pairs, whose losses are weighed by the pairs of a whole step: they are counted before it
  // begins.
  bool has_pairs;
  // Projections into the residual stream start smaller, by the number of them, as in GPT-2; blocks that
  // normalize the sum have no need of it.
  bool scales_residual_init;
};

const ModelFamily& family_of_model(const ModelConfig& config);

}  // namespace trifold
