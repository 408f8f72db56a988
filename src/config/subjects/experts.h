// Mixtures of experts: their router, their capacity, and the ranks that share them.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// Options of the model, of the ranks, and of a start from a dense model; none starts a group.
void add_experts(OptionTable& table, ModelConfig& model);
void add_expert_ranks(OptionTable& table, MeshConfig& mesh);
void add_upcycling(OptionTable& table, CheckpointConfig& checkpoint);

// Checks of the model alone, and of the model with the ranks.
void check_experts(const ModelConfig& model, Problems& problems);
void check_experts_mesh(const PretrainConfig& config, Problems& problems);
// Rejects settings with which a router would not learn.
void check_router_training(const ModelConfig& model, Problems& problems);
// Checks a start of experts as copies of a dense model's networks.
void check_upcycling(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
