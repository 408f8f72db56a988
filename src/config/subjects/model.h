// The model: its size, its layers, its vocabulary.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_model(OptionTable& table, ModelConfig& model);
void check_model(const ModelConfig& model, Problems& problems);
// Rejects a task head with an asynchronous schedule, whose stages count token labels: a task has none.
void check_task_head(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
