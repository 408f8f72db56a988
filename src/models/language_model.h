// Makes the language model that a configuration describes, of a family listed in models/language_family.h, as a list of
// blocks: embedding, transformer blocks, head with its loss.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// `config` must be resolved (every optional field set). Dropout masks are keyed by `seed`. `layout` contributes
// sequence_parallel, recompute_granularity, tiled_mlp, pipeline_vocab_parts, cp_comm_type and device, and the sizes
// that plans count with. `lookups` has the parts of the token embedding of each block that looks them up before the
// embedding (Model::lookups), for weights that the head shares and has in pipeline_vocab_parts parts; the embedding has
// the rest.
Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout = {},
                 std::span<const std::vector<int>> lookups = {});

}  // namespace trifold
