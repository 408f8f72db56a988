// flat_memory: the bytes of a rank's flat buffers.
#pragma once

#include "config/fields/config.h"
#include "data_parallel/grad_layout.h"
#include "layout/memory_report.h"
#include "zero/sharded_optimizer.h"
#include "zero/zero_stage.h"

namespace trifold {

// Bytes of weights, gradients and optimizer state. `versions` as in ParamStore; `gathered` is the number of bytes of
// the buffers of gathered units if parameters are sharded; `config` says where state is off-loaded to, and `work_bytes` is
// ShardedOptimizer::work_bytes.
MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         size_t gathered, const ZeroConfig& config, size_t work_bytes);

// The memory report of a running rank, from the objects that hold the memory.
MemoryReport held_memory(const ParamStore& weights, const GradientBuffer& gradients,
                         const ShardedOptimizer& optimizer);

}  // namespace trifold
