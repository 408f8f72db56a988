// Computes the memory that a rank of a recommender needs, without starting it, for plans and for the run itself.
#pragma once

#include <cstddef>
#include <vector>

#include "data_parallel/grad_layout.h"
#include "embedding/placement.h"
#include "embedding/table_groups.h"
#include "models/dlrm.h"
#include "models/model_walk.h"
#include "pipeline/executor.h"
#include "zero/zero_stage.h"

namespace trifold {

struct RecommenderSetup;

// Bytes of a rank, by purpose.
struct RecommenderMemory {
  size_t tables = 0;
  size_t table_state = 0;
  size_t exchange = 0;     // the two batches in flight, exchanged data, the update of replicated tables
  size_t dense = 0;        // MLPs: weights, gradients, state
  size_t activations = 0;  // for a step, and the features with their gradients
  size_t workspace = 0;    // on a device: for products, sorting, updates, and per-step scalars
  size_t pinned = 0;       // on the host, read by a device; not part of totals
  size_t host = 0;   // on the host, for the tables of a device: owners of rows, caches; not part of totals
  size_t files = 0;  // on disk, for tables; not part of totals
  size_t total() const { return tables + table_state + exchange + dense + activations + workspace; }
  // On the host, with or without a device, at least: without one, the room for batches is that of the longest bags, of
  // which only the ids that a batch has are ever touched.
  size_t on_host(bool has_device) const { return has_device ? pinned + host : tables + table_state + dense; }
  bool operator==(const RecommenderMemory&) const = default;
};

// The memory of each rank, with this placement of all of the setup's tables. `on_device`: with --device cuda.
std::vector<RecommenderMemory> memory_of_ranks(const RecommenderSetup& given, const Placement& placement,
                                               bool on_device);

// How the state of the MLPs is sharded over `ranks` ranks.
ZeroSharing dense_sharing(const RecommenderSetup& setup, int ranks);
// The layout of the MLPs' gradients. If the sums are sharded, the blocks reuse one buffer in turn: the
// backward of the next block waits for the reduction of the previous one.
GradLayout dense_gradients(const FlatLayout& layout, const ZeroSharing& zero);

// The model's blocks, in the order of its parameters, and its stages for the executor: each rank has all stages, of one
// block each.
std::vector<int> blocks_of(const Model& model);
PipelineRank step_pipeline(const RecommenderSetup& setup, const Model& model);

// The working memory of a step: the executor's, measured by a dry run of the plan, and the memory of the features and,
// in training, of their gradients. `model` is on the ranks of `mesh`.
struct StepMemory {
  ActivationMemory blocks;
  size_t features = 0, feature_gradients = 0;
  size_t looked_up = 0;   // looked-up vectors and gradients, with DlrmShape::places
  size_t statistics = 0;  // for batch normalisation
  size_t total() const { return blocks.total() + features + feature_gradients + looked_up + statistics; }
};
StepMemory measure_step(const RecommenderSetup& setup, const Model& model, const Mesh& mesh);

// walk_step: the work of the model's blocks in a training step on a rank of `mesh`, which may be real; all ranks have
// as many samples. train_flops: the flops of that work per sample, forward and backward.
WalkedModel walk_step(const RecommenderSetup& setup, const Model& model, const Mesh& mesh);
double train_flops(const RecommenderSetup& setup, const Model& model, const Mesh& mesh);

// The memory that a rank needs on a device, and on the host for it, in addition to tensors.
struct DeviceExtras {
  size_t workspace = 0, pinned = 0;
};
DeviceExtras device_extras(const RecommenderSetup& setup, const std::vector<TableGroup>& groups, int rank,
                           const ParamList& params);

}  // namespace trifold
