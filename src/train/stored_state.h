// The state of a language model's run as its checkpoints have it (CheckpointMeta::state), besides tensors.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "config/fields/config.h"

namespace trifold {

// BadInput, naming the field, unless the state is one that a run with `model` writes after meta.step steps. `name` is the
// checkpoint's.
void check_state(const CheckpointMeta& meta, const ModelConfig& model, const std::string& name);

}  // namespace trifold
