// What a rank of a recommender holds, worked out before there is one: for plans and for the run itself.
#pragma once

#include <cstddef>
#include <vector>

#include "data_parallel/grad_layout.h"
#include "embedding/placement.h"
#include "models/dlrm.h"
#include "pipeline/executor.h"
#include "zero/zero_stage.h"

namespace trifold {

struct RecommenderSetup;

// Bytes of a rank, by what they are for.
struct RecommenderMemory {
  size_t tables = 0;
  size_t table_state = 0;
  size_t exchange = 0;     // the two batches under way, what travels, the update of replicated tables
  size_t dense = 0;        // MLPs: weights, gradients, state
  size_t activations = 0;  // of a step, and the features with their gradients
  size_t workspace = 0;    // of a device: of products, sorting and updates, and numbers of a step
  size_t pinned = 0;       // of the host, where a device reads it: in no total
  size_t total() const { return tables + table_state + exchange + dense + activations + workspace; }
  bool operator==(const RecommenderMemory&) const = default;
};

// Of each rank, where the tables are placed so; `on_device`: with --device cuda.
std::vector<RecommenderMemory> memory_of_ranks(const RecommenderSetup& setup, const Placement& placement,
                                               bool on_device);

// Which state of the MLPs is sharded over `ranks` ranks.
ZeroSharing dense_sharing(const RecommenderSetup& setup, int ranks);
// The layout of the MLPs' gradients. If the sums are sharded, the blocks reuse one buffer in turn: the
// backward of the next block waits for the reduction of the previous one.
GradLayout dense_gradients(const FlatLayout& layout, const ZeroSharing& zero);

// The model's blocks, in the order of its parameters, and its stages for the executor: all on each rank, one
// block each.
std::vector<int> blocks_of(const Model& model);
PipelinePlace step_place(const RecommenderSetup& setup, const Model& model);

// What a step works in: of the executor, from walking the plan without computing, and outside it the features
// and, in training, their gradients. `model` is on the ranks of `mesh`.
struct StepMemory {
  ActivationMemory blocks;
  size_t features = 0, feature_gradients = 0;
  size_t total() const { return blocks.total() + features + feature_gradients; }
};
StepMemory measure_step(const RecommenderSetup& setup, const Model& model, const Mesh& mesh);

// What a rank takes of a device, and of the host for it, beside all that tensors take.
struct DeviceExtras {
  size_t workspace = 0, pinned = 0;
};
DeviceExtras device_extras(const RecommenderSetup& setup, const Placement& placement, int rank,
                           const ParamList& params);

}  // namespace trifold
