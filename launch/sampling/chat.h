// A conversation with a model, on a terminal or over stdin.
#pragma once

#include "config/fields/config.h"
#include "launch/sampling/sampled_model.h"
#include "train/sampling/continuation.h"

namespace trifold::launch {

// Reads messages until the end of stdin or /exit, and prints the answers as they are drawn. Asks for messages, and says
// what else may be typed, if stdin is a terminal; otherwise every line is a message and only the answers are printed.
// BadInput if the model has no chat template, or if a message alone is too long.
void talk(const GenerateConfig& config, const SampledModel& model);

// What `generate` and a conversation draw: the rules and limits of the options.
Drawing drawing_of(const GenerateConfig& config);

}  // namespace trifold::launch
