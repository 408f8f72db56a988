#include "layout/flat_memory.h"

#include <memory>

namespace trifold {

MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         int64_t gathered, const ZeroConfig& config, size_t work_bytes) {
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * size_of(dtype); };
  MemoryReport memory;
  memory.parameters = zero.parameters ? bytes(layout.shard_elements() + gathered)
                                      : bytes(layout.elements() + (versions - 1) * layout.trained_elements());
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
    memory.offloaded += bytes(layout.shard_elements());
    memory.parameters = bytes(gathered + layout.largest_slice());
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
