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

// What each stage of a cut holds.
struct StageCounts {
  std::vector<std::vector<int>> layers;  // [stage][kind], as layers_by_kind
  std::vector<int> heads;                // blocks of the head, by stage; empty: one, on the last stage
  // Layers without a backward, because nothing before or in them is trained, [stage][kind]; empty: all blocks have one,
  // the embedding too.
  std::vector<std::vector<int>> forward_only = {};

  int forward_only_of(int stage, size_t kind) const;
  double share_of_head(int stage) const;  // between 0 and 1
};
StageCounts stage_counts(const Model& model, std::span<const StageRange> cut);

}  // namespace trifold
