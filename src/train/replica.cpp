#include "train/replica.h"

#include "train/host.h"

namespace trifold {

MeshSizes mesh_sizes(const MeshConfig& config) {
  return {config.tensor_model_parallel_size, config.data_parallel_size.value_or(1),
          config.pipeline_model_parallel_size};
}

Replica::Replica(Communicator& world, const MeshConfig& mesh, const ModelConfig& model, DType dtype,
                 uint64_t seed)
    : world_(world),
      mesh_(world, mesh_sizes(mesh)),
      pool_(mesh.threads_per_rank ? *mesh.threads_per_rank : fair_threads(world)),
      comm_pool_(1),
      compute_(Stream::Mode::Inline, pool_),
      comm_(Stream::Mode::Worker, comm_pool_),
      ops_(cpu_ops()),
      dtype_(dtype),
      model_(make_gpt(model, mesh_, seed, mesh)),
      weights_(model_.params, dtype) {
  weights_.initialise(seed);
}

std::vector<StageBlock> Replica::blocks() const {
  std::vector<StageBlock> blocks;
  for (const Block& block : model_.blocks) blocks.push_back({block.layer.get(), block.slots});
  return blocks;
}

std::string Replica::description() const {
  const MeshSizes& sizes = mesh_.sizes();
  return fmt::format("dp {} x pp {} x tp {}, {} ranks, {} thread{} each", sizes.dp, sizes.pp, sizes.tp,
                     world_.backend(), threads(), threads() == 1 ? "" : "s");
}

}  // namespace trifold
