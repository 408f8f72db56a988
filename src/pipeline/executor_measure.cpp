// Executor: the memory that a plan needs, measured by a dry run.
#include <algorithm>

#include "nn/shapes_only.h"
#include "ops/narrow.h"
#include "pipeline/executor.h"

namespace trifold {

// Calls walk(executor) with an executor that neither computes nor communicates.
template <class Walk>
ActivationMemory Executor::measure_walk(const PipelineRank& pipeline, const ParamList& params,
                                        const Mesh& mesh, LayerType type, Walk walk) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly shapes(params, type.dtype);
  Executor walker(pipeline, mesh, type.narrow ? narrow_cpu_ops() : cpu_ops(), shapes, &shapes, dry, dry,
                  type);
  walk(walker);
  return walker.measured();
}

ActivationMemory Executor::measure(const PipelineRank& pipeline, const ParamList& params, const Mesh& mesh,
                                   const RankPlan& row, const Batch& batch, LayerType type) {
  const auto walk = [&](Executor& walker) {
    const auto give_batch = [&](int) { return batch; };
    walker.run(row, {0, 1.0, true, give_batch, kNoOthers});
  };
  return measure_walk(pipeline, params, mesh, type, walk);
}

ActivationMemory Executor::measure_forward(const PipelineRank& pipeline, const ParamList& params,
                                           const Mesh& mesh, const Batch& batch, LayerType type,
                                           const ReportList* reports) {
  const auto walk = [&](Executor& walker) {
    walker.grads_ = nullptr;  // as an executor that only evaluates
    if (reports != nullptr) walker.collect(*reports);
    walker.evaluate(batch);
  };
  return measure_walk(pipeline, params, mesh, type, walk);
}

ActivationMemory Executor::measured() const {
  ActivationMemory memory;
  for (const StageState& state : stages_) memory.stages.push_back(state.slots.measured());
  for (const Arena& flow : flows_) memory.flow = std::max(memory.flow, flow.peak());
  memory.flows = flows_[1].peak() == 0 ? 1 : 2;
  memory.scratch = scratch_.peak();
  memory.pair_scratch = pair_scratch_.peak();
  memory.message = messages_.bytes();
  memory.kept_blocks = offloading_.peak();
  if (pipeline_.offloads_device) {
    memory.kept_buffers = offloading_.most_blocks();
    memory.kept_blocks = memory.largest_kept_block() * static_cast<size_t>(memory.kept_buffers);
  }
  // The walk does not model how long a message takes to be sent: add one for each direction.
  memory.messages = messages_.count() == 0 ? 0 : messages_.count() + 2;
  memory.batches = static_cast<int>(batches_held_);
  memory.micro_order = micro_order_;
  return memory;
}

size_t Executor::allocated() const {
  size_t bytes = scratch_.capacity() + pair_scratch_.capacity() + messages_.allocated() + offloading_.peak();
  for (const Arena& flow : flows_) bytes += flow.capacity();
  for (const StageState& state : stages_) bytes += state.slots.allocated();
  return bytes;
}

}  // namespace trifold
