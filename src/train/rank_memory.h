// What a rank's flat buffers hold and when, worked out before anything is allocated: for the plan of a run
// and for the run itself.
#pragma once

#include <vector>

#include "config/config.h"
#include "data_parallel/grad_layout.h"
#include "pipeline/executor.h"
#include "pipeline/passes.h"
#include "train/metrics.h"
#include "zero/zero_stage.h"

namespace trifold {

// A row of a rank that runs `stages`, with the gathering of weights that sharded parameters need.
RankPlan with_residency(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages);

// The units that are gathered at one time in such a row, by index.
std::vector<std::pair<int, int>> gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                   const std::vector<Stage>& stages);

// Where the gradients of such a rank lie. `each` and `micros` of a reduction: see step_plan.h. With work
// space where they travel in bf16 (`wire`, see reduce_type) over sharding groups and between so many `copies`
// of them.
GradLayout grad_layout(const FlatLayout& layout, const RankPlan& row, const PipelinePlace& place, bool each,
                       int micros, DType wire, int copies);

// Bytes of weights, gradients and optimizer state: `versions` as in ParamStore; `gathered`: elements of the
// places of gathered units where the parameters are sharded. Of `config`, where state is off-loaded to.
MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         int64_t gathered, const ZeroConfig& config);

// Bytes that such a rank sends over the data axis in its row, as Communicator::bytes_sent counts them: sums
// of gradients, in `wire`, gathered weights, updated slices. The row has the gathering of weights in it;
// `copies` is the number of sharding groups. Over the tensor axis and to the other use of a tied weight it
// sends more.
double data_traffic(const RankPlan& row, const FlatLayout& layout, const GradLayout& gradients,
                    const std::vector<Stage>& stages, DType dtype, DType wire, const ZeroStage& zero,
                    int copies);

}  // namespace trifold
