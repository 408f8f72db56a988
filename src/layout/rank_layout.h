// RankLayout: what one rank of a run holds. The stages and blocks of a rank, its parameters, their places in
// the flat buffers and the decisions of ZeRO are derived here and nowhere else, from the configuration, the
// mesh's sizes and the rank's coordinates; no rank runs, and nothing is allocated. A run (train/replica.h), a
// plan (plan/report.h), a resharding and benchmarks use it, so `trifold plan` predicts exactly what the rank
// will do.
//
// Everything else that a step needs follows from the rank's row of actions: the gathering of sharded weights,
// the places of gradients, memory and traffic.
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
  DType wire = DType::F32;  // the type in which sums are sent, see reduce_type
};

class RankLayout {
 public:
  // For the rank at `coords`. `model` must have been made for the rank's position on the axes that cut
  // parameters, and must outlive the layout; `sharing` is zero_sharing of the run. An Error if the rank has
  // no stage.
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

  // The part of a unit that this rank updates: its slice if the optimizer state is sharded, otherwise all of
  // it.
  std::vector<FlatLayout::Segment> owned(const FlatLayout::Unit& unit) const;
  // Whether this rank saves its part of a parameter; never for a copy of a tied weight.
  bool saves(ParamId id) const;

  // ---- one step ----

  // This rank's row, with actions that gather weights if they are sharded.
  RankPlan with_residency(const RankPlan& row) const;
  // The pairs of units whose weights are gathered at the same time in such a row, by index; none if weights
  // are resident.
  std::vector<std::pair<int, int>> gathered_together(const RankPlan& row) const;
  // The placement of the gradients, with work space if they are sent in bf16.
  GradLayout gradients(const RankPlan& row, const Reduction& how) const;
  // Bytes of weights, gradients and optimizer state of a rank that runs the row `with_residency`.
  MemoryReport memory(const RankPlan& row, const GradLayout& gradients, DType dtype,
                      const OptimizerConfig& optimizer) const;
  // The memory of activations.
  ActivationMemory activations(const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                               DType dtype) const;
  // Bytes that the rank sends over the data axis in such a row, counted as Communicator::bytes_sent does:
  // sums of gradients, gathered weights, updated slices. Traffic over the tensor axis and to the other use of
  // a tied weight is not included.
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
