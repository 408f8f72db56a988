// What memory a plan needs: a walk that neither computes nor communicates.
#include <algorithm>

#include "nn/shapes_only.h"
#include "pipeline/executor.h"

namespace trifold {

// Calls walk(executor, batch) with an executor that neither computes nor communicates.
template <class Walk>
ActivationMemory Executor::measure_walk(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                        int64_t micro_batch_size, int64_t seq_length, DType dtype,
                                        Walk walk) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly shapes(params, dtype);
  Executor walker(place, mesh, cpu_ops(), shapes, &shapes, dry, dry, dtype);
  walk(walker, batch_without_memory(micro_batch_size, seq_length));
  return walker.measured();
}

ActivationMemory Executor::measure(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                   const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                                   DType dtype) {
  const auto walk = [&](Executor& walker, const Batch& batch) {
    const auto give_batch = [&](int) { return batch; };
    const auto no_step = [](const Action&) {};
    walker.run(row, {0, 1.0, true, give_batch, no_step});
  };
  return measure_walk(place, params, mesh, micro_batch_size, seq_length, dtype, walk);
}

ActivationMemory Executor::measure_forward(const PipelinePlace& place, const ParamList& params,
                                           const Mesh& mesh, int64_t micro_batch_size, int64_t seq_length,
                                           DType dtype) {
  const auto walk = [](Executor& walker, const Batch& batch) { walker.evaluate(batch); };
  return measure_walk(place, params, mesh, micro_batch_size, seq_length, dtype, walk);
}

ActivationMemory Executor::measured() const {
  ActivationMemory memory;
  for (const StageState& state : stages_) memory.stages.push_back(state.slots.measured());
  for (const Arena& flow : flows_) memory.flow = std::max(memory.flow, flow.peak());
  memory.scratch = scratch_.peak();
  memory.message = messages_.bytes();
  // The walk knows nothing of how long a message takes to leave: one more for each direction.
  memory.messages = messages_.count() == 0 ? 0 : messages_.count() + 2;
  memory.batches = static_cast<int>(batches_held_);
  memory.micro_order = micro_order_;
  return memory;
}

}  // namespace trifold
