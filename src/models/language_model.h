// The language model that a configuration describes: of the families that models/language_family.h lists, as
// a list of blocks: embedding, transformer blocks, head with its loss.
#pragma once

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// `config` must be resolved (every optional field set). Dropout masks are keyed by `seed`. Of `layout` only
// sequence_parallel, recompute_granularity, cp_comm_type and device are read, and sizes for what plans count.
Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout = {});

}  // namespace trifold
