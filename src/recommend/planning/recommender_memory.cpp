#include "recommend/planning/recommender_memory.h"

#include <algorithm>
#include <numeric>

#include "layout/flat_memory.h"
#include "ops/counting.h"
#include "ops/cuda/workspace.h"
#include "recommend/recommender.h"

namespace trifold {

ZeroSharing dense_sharing(const RecommenderSetup& setup, int ranks) {
  return {setup.zero_stage, ranks, ranks};
}

GradLayout dense_gradients(const FlatLayout& layout, const ZeroSharing& zero) {
  return zero.stage.gradients ? GradLayout::passing(layout, {}) : GradLayout::whole(layout);
}

std::vector<int> blocks_of(const Model& model) {
  std::vector<int> blocks(model.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

PipelineRank step_pipeline(const RecommenderSetup& setup, const Model& model) {
  PipelineRank pipeline;
  for (const int index : blocks_of(model)) {
    const Block& block = model.blocks[static_cast<size_t>(index)];
    pipeline.stages.push_back({index, {{block.layer.get(), block.slots, index}}});
    pipeline.rank_of_stage.push_back(0);
  }
  pipeline.forward_row = table_forward(step_shape(setup));
  return pipeline;
}

namespace {

// A batch whose tensors have no memory.
DlrmBatch planned_rows(const RecommenderSetup& setup, int64_t samples) {
  DlrmBatch rows;
  rows.dense = {nullptr, DType::F32, {samples, setup.schema.dense}};
  rows.labels = rows.weights = {nullptr, DType::F32, {samples, setup.model.logits()}};
  rows.features = rows.feature_gradients = {nullptr, setup.dtype, {samples, setup.model.features()}};
  rows.scores = {nullptr, setup.dtype, {samples, setup.model.logits()}};
  if (!setup.model.places.empty()) {
    const std::vector<EmbeddingTable> tables = setup.uses().tables;
    for (const TableGroup& group :
         group_tables(Placement(tables, std::vector<TablePlacement>(tables.size()), 1, 0)))
      rows.looked_up.push_back({nullptr, setup.dtype, looked_up_shape(setup, group, samples)});
  }
  rows.looked_up_gradients = rows.looked_up;
  if (const std::vector<NormedLayer> normed = setup.model.normed(); !normed.empty()) {
    const DType exact = accumulate_type(setup.dense_dtype());
    rows.real = {nullptr, exact, {samples, 1}};
    rows.running = rows.latest = {nullptr, exact, {2, normed.back().first + normed.back().columns}};
  }
  return rows;
}

}  // namespace

StepMemory measure_step(const RecommenderSetup& setup, const Model& model, const Mesh& mesh) {
  const int64_t samples = setup.samples(mesh.sizes().ranks());
  const DlrmBatch rows = planned_rows(setup, samples);
  Batch batch = batch_without_memory(samples, 1);
  batch.part = &rows;
  const PipelineRank pipeline = step_pipeline(setup, model);
  const DType dtype = setup.dense_dtype();
  StepMemory memory;
  memory.blocks = setup.training ? Executor::measure(pipeline, model.params, mesh,
                                                     table_step(step_shape(setup)), batch, dtype)
                                 : Executor::measure_forward(pipeline, model.params, mesh, batch, dtype);
  memory.blocks.batches = 0;
  memory.features = rows.features.bytes();
  memory.feature_gradients = setup.training ? memory.features : 0;
  for (const Tensor& vectors : rows.looked_up) memory.looked_up += vectors.bytes() * (setup.training ? 2 : 1);
  if (!setup.model.normed().empty()) memory.statistics = rows.running.bytes() + rows.latest.bytes();
  return memory;
}

WalkedModel walk_step(const RecommenderSetup& setup, const Model& model, const Mesh& mesh) {
  const int64_t samples = setup.samples(mesh.sizes().ranks());
  const DlrmBatch rows = planned_rows(setup, samples);
  Batch batch = batch_without_memory(samples, 1);
  batch.part = &rows;
  return walk_work(model, Mesh(mesh.sizes(), mesh.coords()), batch, setup.dense_dtype(),
                   counting_ops(FusedOps::None));
}

double train_flops(const RecommenderSetup& setup, const Model& model, const Mesh& mesh) {
  const WalkedModel work = walk_step(setup, model, mesh);
  double flops = 0;
  for (size_t block = 0; block < work.blocks(); ++block)
    flops += flops_of(work.of_block(block).forward) + flops_of(work.of_block(block).input) +
             flops_of(work.of_block(block).weight);
  return flops / static_cast<double>(setup.samples(mesh.sizes().ranks()));
}

// A fetching thread has its own queue and hence its own workspace.
DeviceExtras device_extras(const RecommenderSetup& setup, const std::vector<TableGroup>& groups, int rank,
                           const ParamList& params) {
  const int ranks = groups.front().placement.ranks();
  LookupMemory lookups;
  size_t updates = 0;
  for (const TableGroup& group : groups) {
    const LookupMemory more = lookup_memory(group.placement, rank, setup.lookups(ranks, group.bags));
    lookups.written += more.written;
    lookups.sorting = std::max(lookups.sorting, more.sorting);
    if (setup.training)
      updates = std::max(
          updates, EmbeddingTables::update_workspace(group.placement, rank, setup.tables(ranks, group.bags)));
  }
  const size_t sorting = setup.training ? lookups.sorting : 0;
  // The numbers of the update rules of each parameter and of the tables, and the factor of the loss; sent in each step.
  const size_t numbers = static_cast<size_t>(params.size() + 2) * sizeof(RuleNumbers);
  const size_t read_back =
      sizeof(LossSums) +
      static_cast<size_t>(setup.samples(ranks) * setup.model.logits()) * size_of(setup.dtype);
  const size_t computing = std::max(cuda::kProductWorkspace, updates);
  const size_t spaces = setup.overlap ? computing + sorting : std::max(computing, sorting);
  return {spaces + numbers, 2 * (lookups.written + setup.batch_room(ranks)) + numbers + read_back};
}

std::vector<RecommenderMemory> memory_of_ranks(const RecommenderSetup& given, const Placement& placement,
                                               bool on_device) {
  RecommenderSetup setup = given;
  setup.storage.on_device = on_device;
  const int ranks = placement.ranks();
  std::vector<RecommenderMemory> memory;
  // The MLPs are the same on all ranks.
  const Mesh mesh({{Axis::Dp, ranks}}, {});
  const Model model = make_dlrm(setup.model, mesh, setup.seed);
  const ZeroSharing zero = dense_sharing(setup, ranks);
  const FlatLayout layout(model.params, {blocks_of(model)}, 1, mesh.sizes(), zero.group);
  const MemoryReport flat = flat_memory(layout, dense_gradients(layout, zero), setup.dense_dtype(),
                                        setup.dense_optimizer, zero.stage, 1, 0, ZeroConfig{}, 0);
  const size_t activations = measure_step(setup, model, mesh).total();
  size_t keys = 0;
  for (const ClickTable& table : setup.schema.tables)
    if (table.keyed()) keys += KeyTable::bytes(table.rows, setup.keys, setup.training);
  const std::vector<TableGroup> groups = group_tables(placement);
  size_t bags = 0;
  for (const TableGroup& group : groups)
    if (!on_device) bags += BagBatch::bytes(setup.uses(), group, setup.schema, setup.samples(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    EmbeddingTables::Memory tables;
    size_t batch = on_device ? setup.batch_room(ranks) : 0;
    const std::vector<EmbeddingTables::Options> options = setup.tables(groups, rank);
    for (size_t g = 0; g < groups.size(); ++g) {
      const TableGroup& group = groups[g];
      tables += EmbeddingTables::memory(group.placement, rank, options[g]);
      const LookupMemory lookups = lookup_memory(group.placement, rank, setup.lookups(ranks, group.bags));
      batch += lookups.written + lookups.orders;
    }
    const DeviceExtras extras = on_device ? device_extras(setup, groups, rank, model.params) : DeviceExtras{};
    memory.push_back({tables.tables, tables.state, tables.buffers + 2 * batch + bags + (on_device ? 0 : keys),
                      flat.predicted_total(), activations, extras.workspace, extras.pinned + tables.shared,
                      tables.host + (on_device ? keys : 0), tables.files});
  }
  return memory;
}

}  // namespace trifold
