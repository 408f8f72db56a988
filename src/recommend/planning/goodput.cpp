#include "recommend/planning/goodput.h"

#include <algorithm>

#include "recommend/recommender_setup.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

// Tables and MLPs in f32, or f64 with --f64, with their state. The first rank writes the MLPs.
CheckpointBytes recommender_checkpoint(const PlanRecommenderConfig& config, const RecommendPlan& plan) {
  const PlacementInput input = placement_input(config.run, plan.setup.schema, config.run.mesh.ranks);
  CheckpointBytes bytes;
  for (const EmbeddingTable& table : plan.placement.tables())
    bytes.all +=
        static_cast<double>(table.rows * (table.width * input.element_bytes + input.state_bytes_of_row));
  const DType wide = accumulate_type(plan.setup.dense_dtype());
  const double dense = static_cast<double>(plan.step.dense_parameters) *
                       static_cast<double>(size_of(wide) + ShardedOptimizer::bytes_per_element(
                                                               plan.setup.dense_optimizer, wide));
  bytes.all += dense;
  for (const RankLoad& load : plan.loads) bytes.rank = std::max(bytes.rank, static_cast<double>(load.bytes));
  bytes.rank += dense;
  return bytes;
}

// Meshes with one and two nodes less, where the tables fit.
std::vector<SmallerMesh> smaller_meshes(const PlanRecommenderConfig& config, const RecommendPlan& plan,
                                        int64_t node) {
  constexpr int64_t kMostLost = 2;
  const int64_t nodes = (config.run.mesh.ranks + node - 1) / node;
  std::vector<SmallerMesh> meshes;
  for (int64_t lost = 1; lost <= std::min(kMostLost, nodes - 1); ++lost) {
    PlanRecommenderConfig smaller = config;
    smaller.run.mesh.ranks = static_cast<int>((nodes - lost) * node);
    try {
      const RecommendPlan there = plan_on_schema(smaller, plan.setup.schema);
      meshes.push_back({smaller.run.mesh.ranks, {nodes - lost, there.step.times.step}});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
    }
  }
  return meshes;
}

}  // namespace

GoodputReport recommender_goodput(const PlanRecommenderConfig& config, const RecommendPlan& plan) {
  const RecommendConfig& run = config.run;
  if (!run.mesh.ranks_per_node) bad_input("--mtbf needs --ranks-per-node, the number of ranks on a node");
  PlannedTraining training;
  training.step = plan.step.times.step;
  training.steps = run.training.train_iters.value_or(0);
  training.epochs = run.training.train_epochs;
  training.ranks = run.mesh.ranks;
  training.ranks_per_node = *run.mesh.ranks_per_node;
  training.checkpoint = recommender_checkpoint(config, plan);
  training.saves_in_background = run.checkpoint.async_save;
  training.save_interval = run.checkpoint.save_interval;
  training.timeout = planned_timeout(run.mesh, run.log.watch, training.step);
  training.seed = run.seed;
  training.smaller = smaller_meshes(config, plan, training.ranks_per_node);
  return make_goodput(config.goodput, training);
}

}  // namespace trifold
