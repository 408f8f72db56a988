// What a rank's flat buffers hold and when, worked out before anything is allocated: for the plan of a run
// and for the run itself.
#pragma once

#include <vector>

#include "config/config.h"
#include "data_parallel/flat_layout.h"
#include "pipeline/executor.h"
#include "pipeline/passes.h"
#include "train/metrics.h"
#include "zero/zero_stage.h"

namespace trifold {

// A row of a rank that runs `stages`, with the gathering of weights that sharded parameters need.
RankPlan with_residency(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages);

// Bytes of weights, gradients and optimizer state: `versions` as in ParamStore, `resident` units gathered at
// once where the parameters are sharded; `offload`: with optimizer state and sharded weights in a file.
MemoryReport flat_memory(const FlatLayout& layout, DType dtype, const OptimizerConfig& optimizer,
                         const ZeroStage& zero, int versions, int resident, bool offload);

}  // namespace trifold
