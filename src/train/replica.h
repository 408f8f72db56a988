// Replica: what one rank needs to run its part of a model: its place in the mesh and in the pipeline, its
// cores and streams, the model and the weights. Training, evaluation, sampling and benchmarks are built on
// it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "layout/rank_layout.h"
#include "pipeline/executor.h"
#include "zero/param_store.h"

namespace trifold {

class Replica {
 public:
  // Collective over `world`, which must outlive the replica. `model` and `mesh` must be resolved. Weights
  // are zero until something loads them or an optimizer gives them their initial values. `seed` keys dropout.
  // `rank_of_stage` says where each stage of the pipeline is; empty: one stage on each pipeline rank.
  // BadInput if the model has fewer blocks than there are stages. `weight_versions` of each pipeline rank as
  // in ParamStore; empty: one each. `precision` selects the products of a device; the type of weights is
  // `dtype`.
  Replica(Communicator& world, const MeshConfig& mesh, const ModelConfig& model, DType dtype, uint64_t seed,
          std::vector<int> rank_of_stage = {}, const ZeroConfig& zero = {},
          const std::vector<int>& weight_versions = {}, const PrecisionConfig& precision = {});

  Communicator& world() { return world_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  Stream& comm() { return comm_; }
  // For the collectives of tensor parallelism that layers hide behind computation (Run::side). It has a
  // queue of its own on a device, and a thread of its own where a core is spare. Elsewhere it is compute()
  // itself: a thread without a core of its own hides nothing, and waking it costs up to a tenth of the step
  // of a small model.
  Stream& side() { return own_side_ ? *own_side_ : compute_; }
  DType dtype() const { return dtype_; }
  // Makes the device memory that operations of compute() take beside their tensors (layout/device_workspace.h)
  // now, while no other rank waits for this one's device.
  void reserve_workspace(size_t bytes);
  // The whole model, its stages, and what of it this rank holds.
  const Model& model() const { return cut_.model; }
  const CutModel& cut() const { return cut_; }
  const RankLayout& layout() const { return layout_; }
  ParamStore& weights() { return *weights_; }
  const ParamStore& weights() const { return *weights_; }
  int threads() const { return pool_.size(); }
  const PipelinePlace& place() const { return place_; }
  // All that this rank puts work on.
  std::vector<Stream*> streams();
  // A row of this rank with the gathering of weights that ZeRO stage 3 needs; unchanged where the weights are
  // resident. Makes the memory for them.
  RankPlan with_residency(const RankPlan& row);
  // With whom this rank shares its parameters out.
  const DataGroups& groups() const { return *groups_; }
  // Over the two ranks that share a tied weight; null where this rank has no part in it.
  Communicator* ties() { return ties_.get(); }
  // "dp 2 x pp 1 x tp 1, thread ranks, 1 thread each"
  std::string description() const;

 private:
  // A stream of its own for messages.
  struct Worker {
    Worker(Stream::Mode mode, Device* device) : stream(mode, pool, device, QueueUse::Communicating) {}
    ThreadPool pool{1};
    Stream stream;
  };

  void connect_pipeline();
  void meet_neighbours();

  Communicator& world_;
  Mesh mesh_;
  const OpTable& ops_;
  ThreadPool pool_;
  ThreadPool comm_pool_, side_pool_;
  Stream compute_;
  Stream comm_;
  std::optional<Stream> own_side_;
  DType dtype_;
  CutModel cut_;
  RankLayout layout_;
  std::unique_ptr<Communicator> ties_;
  std::unique_ptr<Communicator> backward_;
  std::unique_ptr<Worker> forward_worker_, backward_worker_;
  PipelinePlace place_;
  std::unique_ptr<DataGroups> groups_;
  std::unique_ptr<ParamStore> weights_;
};

}  // namespace trifold
