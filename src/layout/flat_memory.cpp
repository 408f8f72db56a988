#include "layout/flat_memory.h"

#include <algorithm>

namespace trifold {

MemoryReport flat_memory(const FlatLayout& layout, const GradLayout& gradients, DType dtype,
                         const OptimizerConfig& optimizer, const ZeroStage& zero, int versions,
                         int64_t gathered, const ZeroConfig& config) {
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * size_of(dtype); };
  MemoryReport memory;
  memory.parameters =
      zero.parameters ? bytes(layout.shard_elements() + gathered) : bytes(versions * layout.elements());
  memory.gradients = static_cast<size_t>(gradients.elements()) * size_of(accumulate_type(dtype));
  const int64_t owned = zero.optimizer ? layout.shard_elements() : layout.elements();
  const size_t state_bytes = ShardedOptimizer::bytes_per_element(optimizer, dtype);
  memory.optimizer = static_cast<size_t>(owned) * state_bytes;
  if (!config.offloads()) return memory;
  memory.offloaded = memory.optimizer;
  if (config.offloads_to_host()) {
    memory.optimizer = 0;
    return memory;
  }
  memory.optimizer = static_cast<size_t>(std::min(owned, kOffloadWindow)) * state_bytes;
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
