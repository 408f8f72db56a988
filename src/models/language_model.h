// make_model: makes the language model that a configuration describes as a list of blocks: embedding, transformer
// blocks, and head with its loss. The families are listed in models/language_family.h.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// `config` must be resolved (every optional field set). Dropout masks are keyed by `seed`. Of `layout` it reads
// sequence_parallel, recompute_granularity, tiled_mlp, pipeline_vocab_parts, cp_comm_type and device, and the sizes
// that plans need. `lookups` lists, for each block that looks up tokens before the embedding (Model::lookups), its
// parts of the token embedding, if the tied head has pipeline_vocab_parts parts; the embedding has the other parts.
Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout = {},
                 std::span<const std::vector<int>> lookups = {});

}  // namespace trifold
