// Checkpoints that a run writes and begins with.
#pragma once

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

// Saving and resuming, for any kind of run; add_checkpoint adds more.
void add_saving(OptionTable& table, CheckpointConfig& checkpoint);
void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint);
// Checkpoints without the optimizer state, of a language model's run.
void add_optimizer_state(OptionTable& table, CheckpointConfig& checkpoint);
// The exponential average of the weights instead of the weights, for commands that use a trained model.
void add_load_ema(OptionTable& table, bool& load_ema);
// Hugging Face folders that a language model's run writes.
void add_model_folders(OptionTable& table, CheckpointConfig& checkpoint);

}  // namespace trifold
