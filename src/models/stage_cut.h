// The blocks of each pipeline stage of a model, as a configuration asks for.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "models/stages.h"

namespace trifold {

// Divided among `stages` stages by cost, or as `mesh.cut` says. BadInput where it does not fit the model or
// that number of stages.
std::vector<StageRange> cut_stages(const MeshConfig& mesh, const Model& model, int stages);

// Layers of each stage, [stage].
std::vector<int> layers_of(const Model& model, std::span<const StageRange> cut);

}  // namespace trifold
