// Replica owns everything with which one rank runs its part of a model: its position in the mesh and the pipeline, its
// cores and streams, the model and the weights. Training, evaluation, sampling and benchmarks are built on it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "data_parallel/gradient_buffer.h"
#include "layout/rank_layout.h"
#include "pipeline/executor.h"
#include "zero/param_store.h"

namespace trifold {

class Replica {
 public:
  // Collective over `world`, which must outlive the replica. `model` and `mesh` must be resolved. Weights are zero
  // until they are loaded or an optimizer initialises them. `seed` keys dropout. `stage_ranks` assigns stages to ranks.
  // `weight_versions` is indexed by pipeline rank, as in ParamStore; empty: one version each. `precision` selects the
  // kind of products on a device; `dtype` is the type of weights. `ops` are the operations; null: the table of --device.
  // BadInput if the model has fewer blocks than there are stages.
  Replica(Communicator& world, const MeshConfig& mesh, const ModelConfig& model, DType dtype, uint64_t seed,
          StageRanks stage_ranks = {}, const ZeroConfig& zero = {},
          const std::vector<int>& weight_versions = {}, const PrecisionConfig& precision = {},
          const OpTable* ops = nullptr);

  Communicator& world() { return world_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  Stream& comm() { return comm_; }
  // The stream of tensor and context-parallel collectives that overlap with computation (Run::side). It has its own
  // queue on a device, and its own thread if a core is spare. Otherwise it is compute() itself: without a spare core a
  // thread overlaps nothing, and waking it costs up to a tenth of a small model's step.
  Stream& side() { return own_side_ ? *own_side_ : compute_; }
  DType dtype() const { return dtype_; }
  // Allocates the device workspace of compute()'s operations (layout/device_workspace.h) now, while no other rank waits
  // for this rank's device.
  void reserve_workspace(size_t bytes);
  // The whole model, its stages, and the part that this rank holds.
  const Model& model() const { return cut_.model; }
  const CutModel& cut() const { return cut_; }
  const RankLayout& layout() const { return layout_; }
  ParamStore& weights() { return *weights_; }
  const ParamStore& weights() const { return *weights_; }
  int threads() const { return pool_.size(); }
  const PipelineRank& pipeline() const { return pipeline_; }
  // All streams on which this rank enqueues work.
  std::vector<Stream*> streams();
  // `row` of this rank with the weight gathers that ZeRO stage 3 needs, for which memory is allocated; unchanged if the
  // weights are resident.
  RankPlan with_residency(const RankPlan& row);
  // The ranks with which this rank shards its parameters.
  const DataGroups& groups() const { return *groups_; }
  // Communicators with the ranks that hold the other uses of this rank's tied weights.
  Ties ties();
  // "dp 2 x pp 1 x tp 1, thread ranks, 1 thread each"
  std::string description() const;

 private:
  // A separate stream for messages.
  struct Worker {
    Worker(Stream::Mode mode, Device* device) : stream(mode, pool, device, QueueUse::Communicating) {}
    ThreadPool pool{1};
    Stream stream;
  };

  void connect_pipeline();
  void connect_ties();
  void meet_neighbours();
  void meet_experts();

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
  std::map<int, std::unique_ptr<Communicator>> ties_;  // [rank of the later uses]
  std::unique_ptr<Communicator> backward_;
  std::unique_ptr<Worker> forward_worker_, backward_worker_, offload_worker_, exchange_worker_;
  PipelineRank pipeline_;
  std::unique_ptr<DataGroups> groups_;
  std::unique_ptr<ParamStore> weights_;
};

}  // namespace trifold
