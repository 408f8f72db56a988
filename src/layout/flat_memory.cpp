#include "layout/flat_memory.h"

#include <memory>

namespace trifold {

MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         size_t gathered, const ZeroConfig& config, size_t work_bytes) {
  const size_t slices = layout.shard_bytes(0, layout.shard_elements(), dtype);
  MemoryReport memory;
  memory.parameters = zero.parameters ? slices + gathered
                                      : layout.bytes(0, layout.elements(), dtype) +
                                            static_cast<size_t>(versions - 1) *
                                                layout.bytes(0, layout.trained_elements(), dtype);
  memory.gradients = static_cast<size_t>(gradients.elements()) * size_of(accumulate_type(dtype));
  const std::unique_ptr<UpdateRule> rule = make_update_rule(optimizer);
  const StateLayout state(layout, zero.optimizer, *rule, optimizer, dtype);
  memory.optimizer = work_bytes + state.bytes();
  if (!config.offloads()) return memory;
  memory.offloaded = state.bytes();
  if (config.offloads_to_host()) {
    memory.optimizer = work_bytes;
    return memory;
  }
  memory.optimizer = work_bytes + state.window_bytes(kOffloadWindow);
  if (zero.parameters) {
    memory.offloaded += slices;
    memory.parameters = gathered + layout.largest_slice_bytes(dtype);
  }
  return memory;
}

MemoryReport held_memory(const ParamStore& weights, const GradientBuffer& gradients,
                         const ShardedOptimizer& optimizer) {
  MemoryReport memory;
  memory.parameters = weights.bytes();
  memory.gradients = gradients.bytes();
  memory.optimizer = optimizer.bytes();
  memory.offloaded = weights.file_bytes() + optimizer.offloaded_bytes();
  return memory;
}

}  // namespace trifold
