// Replica: what one rank needs to run a model forward: its place in the mesh, its cores and streams, the
// model and the weights. Training, evaluation, sampling and benchmarks are built on it.
#pragma once

#include <memory>
#include <vector>

#include "config/config.h"
#include "models/gpt.h"
#include "pipeline/executor.h"
#include "zero/param_store.h"

namespace trifold {

class Replica {
 public:
  // Collective over `world`, which must outlive the replica. `model` and `mesh` must be resolved. Weights
  // start at their initial values for `seed`, which also keys dropout.
  Replica(Communicator& world, const MeshConfig& mesh, const ModelConfig& model, DType dtype, uint64_t seed);

  Communicator& world() { return world_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  Stream& comm() { return comm_; }
  // For collectives that layers hide behind computation (Run::side).
  Stream& side() { return compute_; }
  DType dtype() const { return dtype_; }
  const Model& model() const { return model_; }
  ParamStore& weights() { return weights_; }
  const ParamStore& weights() const { return weights_; }
  int threads() const { return pool_.size(); }
  // The blocks this rank runs.
  std::vector<StageBlock> blocks() const;
  // "dp 2 x pp 1 x tp 1, thread ranks, 1 thread each"
  std::string description() const;

 private:
  Communicator& world_;
  Mesh mesh_;
  ThreadPool pool_;
  ThreadPool comm_pool_;
  Stream compute_;
  Stream comm_;
  const OpTable& ops_;
  DType dtype_;
  Model model_;
  ParamStore weights_;
};

MeshSizes mesh_sizes(const MeshConfig& config);

}  // namespace trifold
