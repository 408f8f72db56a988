// What follows from the family of a model for options and for code that works with every family. Each family
// has a file of its own (family_<name>.cpp) and an entry in the table of model_family.cpp; nothing else asks
// which family a model is of. Its blocks, data and names are in models/language_family.h.
#pragma once

#include "config/fields/config.h"
#include "config/fields/problems.h"

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
  // Its encoder can be tuned for a task (trifold finetune).
  bool has_tasks;
  // It can be trained on data sets of tokens (.bin/.idx), not on text only.
  bool reads_token_files;
  // Adds what contradicts the family: in the options of the model, and in those of its data.
  void (*check_model)(const ModelConfig& model, Problems& problems);
  void (*check_data)(const DataConfig& data, Problems& problems);
};

const ModelFamily& family_of_model(const ModelConfig& config);

}  // namespace trifold
