// Makes the language model that a configuration describes, of a family listed in models/language_family.h, as a list of
// blocks: embedding, transformer blocks, head with its loss.
#pragma once

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// `config` must be resolved (every optional field set). Dropout masks are keyed by `seed`. `layout` contributes
// sequence_parallel, recompute_granularity, tiled_mlp, pipeline_vocab_parts, cp_comm_type and device, and the sizes
// that plans count with.
Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout = {});

}  // namespace trifold
