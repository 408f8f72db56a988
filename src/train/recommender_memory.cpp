#include "train/recommender_memory.h"

#include <algorithm>

#include "layout/flat_memory.h"
#include "nn/shapes_only.h"
#include "ops/cuda/workspace.h"
#include "train/recommender.h"

namespace trifold {

ZeroSharing dense_sharing(const RecommenderSetup& setup, int ranks) {
  return {setup.zero_stage, ranks, ranks};
}

GradLayout dense_gradients(const FlatLayout& layout, const ZeroSharing& zero) {
  return zero.stage.gradients ? GradLayout::passing(layout, {}) : GradLayout::whole(layout);
}

StepArenas measure_step(const RecommenderSetup& setup, const Dlrm& model, const Mesh& mesh) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly shapes(model.params(), setup.dense_dtype());
  Arena keep = Arena::measuring(), flow = Arena::measuring(), scratch = Arena::measuring();
  Run run{.stream = dry,
          .side = dry,
          .ops = cpu_ops(),
          .mesh = mesh,
          .params = shapes,
          .grads = &shapes,
          .keep = keep,
          .flow = flow,
          .scratch = scratch,
          .batch = nullptr,
          .dtype = setup.dense_dtype(),
          .training = setup.training,
          .seed = setup.seed,
          .loss_scale = 1,
          .loss_sum = {},
          .weight_sum = {}};
  Saved saved(model.slots());
  const int64_t samples = setup.samples(mesh.sizes().ranks());
  const Shape dense_shape{samples, setup.schema.dense};
  const Tensor features = keep.take(setup.dtype, {samples, setup.model.features()});
  model.bottom(run, features, {nullptr, DType::F32, dense_shape}, saved);
  const Tensor logits = model.top(run, features, saved);
  keep.take(setup.dtype, logits.shape);  // losses
  if (setup.training) {
    const Tensor dlogits = flow.take(setup.dtype, logits.shape);
    const Tensor dfeatures = model.top_backward_input(run, dlogits, saved);
    model.top_backward_weight(run, saved);
    model.bottom_backward(run, dfeatures, saved);
  }
  return {keep.peak(), flow.peak(), scratch.peak()};
}

// A thread that fetches has a queue of its own, and so a work space of its own.
DeviceExtras device_extras(const RecommenderSetup& setup, const Placement& placement, int rank,
                           const Dlrm& model) {
  const int ranks = placement.ranks();
  const LookupMemory lookups = lookup_memory(placement, rank, setup.lookups(ranks));
  const size_t sorting = setup.training ? lookups.sorting : 0;
  // The rules' of each parameter and of the tables, and the factor of the loss; sent each step.
  const size_t numbers = static_cast<size_t>(model.params().size() + 2) * sizeof(RuleNumbers);
  const size_t told = sizeof(double) + static_cast<size_t>(setup.samples(ranks)) * size_of(setup.dtype);
  const size_t updates =
      setup.training ? EmbeddingTables::update_workspace(placement, rank, setup.tables(ranks)) : 0;
  const size_t computing = std::max(cuda::kProductWorkspace, updates);
  const size_t spaces = setup.overlap ? computing + sorting : std::max(computing, sorting);
  return {spaces + numbers, 2 * (lookups.written + setup.batch_room(ranks)) + numbers + told};
}

std::vector<RecommenderMemory> memory_of_ranks(const RecommenderSetup& setup, const Placement& placement,
                                               bool on_device) {
  const int ranks = placement.ranks();
  std::vector<RecommenderMemory> memory;
  // The MLPs are the same on all.
  const Mesh mesh({{Axis::Dp, ranks}}, {});
  const Dlrm model(setup.model, mesh, setup.seed);
  const ZeroSharing zero = dense_sharing(setup, ranks);
  const FlatLayout layout(model.params(), {Dlrm::blocks(setup.model)}, 1, zero.group);
  const MemoryReport flat = flat_memory(layout, dense_gradients(layout, zero), setup.dense_dtype(),
                                        setup.dense_optimizer, zero.stage, 1, 0, ZeroConfig{});
  const StepArenas arenas = measure_step(setup, model, mesh);
  for (int rank = 0; rank < ranks; ++rank) {
    const EmbeddingTables::Memory tables = EmbeddingTables::memory(placement, rank, setup.tables(ranks));
    const LookupMemory lookups = lookup_memory(placement, rank, setup.lookups(ranks));
    const size_t batch = lookups.written + lookups.orders + (on_device ? setup.batch_room(ranks) : 0);
    const DeviceExtras extras = on_device ? device_extras(setup, placement, rank, model) : DeviceExtras{};
    memory.push_back({tables.tables, tables.state, tables.buffers + 2 * batch, flat.predicted_total(),
                      arenas.keep + arenas.flow + arenas.scratch, extras.workspace, extras.pinned});
  }
  return memory;
}

}  // namespace trifold
