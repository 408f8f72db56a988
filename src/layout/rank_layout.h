// RankLayout: what one rank of a run holds: its stages, blocks and parameters, the layout of its flat buffers, and the
// state that ZeRO shards. It is derived here and nowhere else, from the configuration, the mesh's sizes and the rank's
// coordinates, without a running rank or an allocation. Runs (train/replica.h), plans (plan/report.h), resharding and
// benchmarks use it, so `trifold plan` predicts exactly what the rank will do.
//
// For a rank's row of actions it derives the rest of a step: when sharded weights are gathered, the layout of
// gradients, memory and traffic.
#pragma once

#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "core/layer_type.h"
#include "data_parallel/grad_layout.h"
#include "layout/cut_model.h"
#include "layout/memory_report.h"
#include "pipeline/executor.h"
#include "zero/zero_stage.h"

namespace trifold {

// How a step sums gradients over the data axes.
struct Reduction {
  bool each = false;        // after each micro-batch instead of once per step
  int micros = 2;           // micro-batches of a global batch on one data-parallel rank
  DType wire = DType::F32;  // the type in which sums are sent (reduce_type)
};

class RankLayout {
 public:
  // The layout of the rank at `coords`. `model` must be made for the rank's position on the axes that cut parameters,
  // and must outlive the layout; `sharing` is zero_sharing of the run. Throws if the rank has no stage.
  RankLayout(const CutModel& model, const MeshSizes& sizes, const MeshCoords& coords, const ZeroConfig& zero,
             const ZeroSharing& sharing);

  const CutModel& model() const { return *model_; }
  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoords& coords() const { return coords_; }
  // All parameters of the model; ParamList::held and stored select this rank's.
  const ParamList& params() const { return flat_.params(); }
  // The stages of this rank, ascending.
  const std::vector<Stage>& stages() const { return stages_; }
  // This rank's part of the pipeline, without communicators and streams.
  PipelineRank pipeline() const;
  const FlatLayout& flat() const { return flat_; }
  const ZeroSharing& zero() const { return sharing_; }

  // The segments of a unit that this rank updates: its slice's if the optimizer state is sharded, otherwise all.
  std::vector<FlatLayout::Segment> owned(const FlatLayout::Unit& unit) const;
  // Whether this rank saves its part of a parameter; never for a copy of a tied weight.
  bool saves(ParamId id) const;

  // ---- one step ----

  // The row, with actions that gather weights if they are sharded.
  RankPlan with_residency(const RankPlan& row) const;
  // The pairs of units, by index, whose weights are gathered at the same time in a row with_residency; none if weights
  // are resident.
  std::vector<std::pair<int, int>> gathered_together(const RankPlan& row) const;
  // The layout of the gradients, with workspace if sums are sent in bf16.
  GradLayout gradients(const RankPlan& row, const Reduction& reduction) const;
  // Bytes of weights, gradients and optimizer state for a row with_residency.
  MemoryReport memory(const RankPlan& row, const GradLayout& gradients, DType dtype,
                      const OptimizerConfig& optimizer) const;
  // The memory of activations for a row.
  ActivationMemory activations(const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                               LayerType type) const;
  // Bytes that the rank sends over the data axes in a row with_residency, counted like Communicator::bytes_sent: sums
  // of gradients, gathered weights and updated slices. Excludes traffic over the tensor axis and to the other use of a
  // tied weight.
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
