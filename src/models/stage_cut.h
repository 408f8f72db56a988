// The blocks of each pipeline stage of a model, according to a configuration.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "models/stages.h"

namespace trifold {

// Divides the blocks, without those of Model::lookups, among `stages` stages by `costs`, one for each block, or as
// `mesh.cut` says. BadInput if that does not fit the model or the number of stages.
std::vector<StageRange> cut_stages(const MeshConfig& mesh, const Model& model, std::span<const double> costs,
                                   int stages);

// Layers of each stage, [stage].
std::vector<int> layers_of(const Model& model, std::span<const StageRange> cut);
// Those of them that have no experts, while others do.
std::vector<int> plain_layers_of(const Model& model, std::span<const StageRange> cut);
// Blocks of the head in each stage.
std::vector<int> heads_of(const Model& model, std::span<const StageRange> cut);

}  // namespace trifold
