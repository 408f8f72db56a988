// Low-rank adapters of linear layers, with which the other weights are frozen.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// Starts the group "Adapters".
void add_adapters(OptionTable& table, AdapterConfig& adapters);

// Checks the targets against the layers of the model.
void check_adapters(const ModelConfig& model, Problems& problems);
// Checks that a run has a model whose weights it can freeze.
void check_adapters_start(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
