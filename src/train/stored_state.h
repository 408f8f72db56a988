// The state of a language model's run, other than tensors, as checkpoints store it (CheckpointMeta::state).
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "config/fields/config.h"

namespace trifold {

// BadInput, naming the field, unless the state is valid for a run with `model` after meta.step steps. `name` is the
// checkpoint's name.
void check_state(const CheckpointMeta& meta, const ModelConfig& model, const std::string& name);

}  // namespace trifold
