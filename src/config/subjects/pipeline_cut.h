// The transformer layers of each pipeline stage as given by options. Without such options the blocks of the model are
// divided by cost (models/stages.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "config/options/problem.h"

namespace trifold {

// The layers of every stage, in the order of the model, and its parts of the head, which follow all layers: the last
// stage has at least one part. The first stage also has the embedding. Both lists are invalid if there is a `problem`.
struct StageLayers {
  std::vector<int> layers;
  std::vector<int> heads;
  std::optional<Problem> problem;
};

// Evaluates `cut` for `chunks` stages on each of `ranks` pipeline ranks. `cut.given()` must hold.
//
// The layout has Megatron-LM's notation: E embedding, t a layer, L loss, | between stages, commas are ignored, and
// (...)*N or t*N repeats: "Et|(tt|)*6t|L". With `head_parts` parts of the head there is an L for each; other options
// assign all of them to the last stage. Layer counts given for the first and the last rank are divided among that
// rank's stages; the remaining layers are divided evenly, with any excess on earlier stages. An embedding or a loss
// that counts as a layer leaves its stage one layer less.
StageLayers stage_layers(const StageCutConfig& cut, int64_t num_layers, int head_parts, int ranks,
                         int chunks);

}  // namespace trifold
