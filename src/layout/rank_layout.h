// RankLayout: what one rank of a run holds. It is the one place where the stages and blocks of a rank, its
// parameters, their places in the flat buffers and the decisions of ZeRO are derived. It is a value made from
// the configuration, the mesh's sizes and the rank's coordinates: no rank runs, and nothing is allocated. A
// run (train/replica.h), a plan (plan/report.h), a resharding and benchmarks read it, so what `trifold
// plan` says of a rank is what the rank will do.
//
// What a step needs beside that follows from the rank's row of actions: the gathering of sharded weights, the
// places of gradients, memory and traffic.
#pragma once

#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "data_parallel/grad_layout.h"
#include "layout/cut_model.h"
#include "layout/memory_report.h"
#include "pipeline/executor.h"
#include "zero/zero_stage.h"

namespace trifold {

// How a step sums its gradients over the data axes.
struct Reduction {
  bool each = false;        // after each micro-batch, not once a step
  int micros = 2;           // of one global batch on one data-parallel rank
  DType wire = DType::F32;  // in which sums travel, see reduce_type
};

class RankLayout {
 public:
  // Of the rank at `coords`. `model` is made for its place on the axes that cut parameters, and must outlive
  // the layout; `sharing` is zero_sharing of the run. An Error where the rank has no stage.
  RankLayout(const CutModel& model, const MeshSizes& sizes, const MeshCoords& coords, const ZeroConfig& zero,
             const ZeroSharing& sharing);

  const CutModel& model() const { return *model_; }
  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoords& coords() const { return coords_; }
  // All parameters of the model; ParamList::held and stored select those of this rank.
  const ParamList& params() const { return flat_.params(); }
  // The stages of this rank, ascending.
  const std::vector<Stage>& stages() const { return stages_; }
  // Its place in the pipeline, without communicators and streams.
  PipelinePlace place() const;
  const FlatLayout& flat() const { return flat_; }
  const ZeroSharing& zero() const { return sharing_; }

  // What this rank updates of a unit: its slice where the optimizer is sharded, else all of it.
  std::vector<FlatLayout::Segment> owned(const FlatLayout::Unit& unit) const;
  // Whether this rank is the one that saves what it owns of a parameter; never for a copy of a tied weight.
  bool saves(ParamId id) const;

  // ---- Of a step ----

  // This rank's row with the gathering of weights where they are sharded.
  RankPlan with_residency(const RankPlan& row) const;
  // The units that are gathered at one time in such a row, by index; none where weights are resident.
  std::vector<std::pair<int, int>> gathered_together(const RankPlan& row) const;
  // Where the gradients lie; with work space where they travel in bf16.
  GradLayout gradients(const RankPlan& row, const Reduction& how) const;
  // Bytes of weights, gradients and optimizer state of a rank that runs the row `with_residency`.
  MemoryReport memory(const RankPlan& row, const GradLayout& gradients, DType dtype,
                      const OptimizerConfig& optimizer) const;
  // What activations take.
  ActivationMemory activations(const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                               DType dtype) const;
  // Bytes that the rank sends over the data axis in such a row, as Communicator::bytes_sent counts them: sums
  // of gradients, gathered weights, updated slices. Over the tensor axis and to the other use of a tied
  // weight it sends more.
  double data_traffic(const RankPlan& row, const GradLayout& gradients, DType dtype, DType wire) const;

 private:
  const CutModel* model_;
  MeshSizes sizes_;
  MeshCoords coords_;
  ZeroConfig config_;
  ZeroSharing sharing_;
  std::vector<Stage> stages_;
  FlatLayout flat_;
};

}  // namespace trifold
