// Checks of the model and of the numbers it computes with.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void check_experts(const ModelConfig& model, Problems& problems);           // part of check_model
void check_latent_attention(const ModelConfig& model, Problems& problems);  // another
// Settings with which a router would not learn.
void check_router_training(const ModelConfig& model, Problems& problems);
// Experts that begin as copies of a dense model's networks.
void check_upcycling(const PretrainConfig& config, Problems& problems);
void check_model(const ModelConfig& model, Problems& problems);
// Task heads exclude asynchronous schedules, whose stages count token labels; a task has none.
void check_task_head(const PretrainConfig& config, Problems& problems);
void check_precision(const PrecisionConfig& precision, Problems& problems);

}  // namespace trifold
