// cut_stages for a configuration: the blocks of each pipeline stage of a model.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "models/stages.h"

namespace trifold {

// Cuts the blocks, without the first Model::lookups blocks, into `stages` stages by `costs`, one for each block, or as
// `mesh.cut` says. BadInput if mesh.cut does not fit the model or the number of stages.
std::vector<StageRange> cut_stages(const MeshConfig& mesh, const Model& model, std::span<const double> costs,
                                   int stages);

// For each stage of a cut: the number of its layers; the number of each kind (config/fields/layer_kinds.h) of them,
// [stage][kind], or with `forward_only` of those without a backward; the number of its blocks of the head.
std::vector<int> layers_of(const Model& model, std::span<const StageRange> cut);
std::vector<std::vector<int>> layers_by_kind(const Model& model, std::span<const StageRange> cut,
                                             bool forward_only = false);
std::vector<int> heads_of(const Model& model, std::span<const StageRange> cut);

}  // namespace trifold
