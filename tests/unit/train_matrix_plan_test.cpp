#include "zero/matrix_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "layout/rank_layout.h"
#include "optim/muon.h"
#include "plan/planned_run.h"
#include "support/training.h"

namespace trifold {
namespace {

PretrainConfig experts_run(int tp, int dp, int ep, int etp, int stage) {
  PretrainConfig config = test::on_mesh(test::small_run(), dp, tp);
  test::make_llama(config.model, 2);
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.mesh.sequence_parallel = tp > 1;
  config.mesh.expert_model_parallel_size = ep;
  config.mesh.expert_tensor_parallel_size = etp;
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 3000;
  config.optimizer.optimizer = OptimizerKind::Muon;
  return config;
}

// By name, number and the first rank of the group: how often each element is a source, and the owner.
struct Seen {
  std::vector<int> sources;
  int owner = -1;
};
using Matrices = std::map<std::tuple<std::string, int64_t, int>, Seen>;

// The plans of all ranks of the only stage.
std::vector<MatrixPlan> plans_of(const PretrainConfig& config, std::vector<std::unique_ptr<CutModel>>& models,
                                 std::vector<std::unique_ptr<RankLayout>>& layouts) {
  const RunSpec run = run_spec(config);
  const PlannedRun planned(run);
  std::vector<MatrixPlan> plans;
  for (int rank = 0; rank < planned.sizes().ranks(); ++rank) {
    const MeshCoords coords = coords_of(rank, planned.sizes());
    models.push_back(std::make_unique<CutModel>(run.model, run.mesh, Mesh(planned.sizes(), coords), run.seed,
                                                planned.order().stage_ranks()));
    layouts.push_back(
        std::make_unique<RankLayout>(*models.back(), planned.sizes(), coords, run.zero, planned.zero()));
    plans.emplace_back(layouts.back()->flat(), planned.sizes(), coords, planned.zero().stage.optimizer);
  }
  return plans;
}

void expect_sound(const PretrainConfig& config) {
  std::vector<std::unique_ptr<CutModel>> models;
  std::vector<std::unique_ptr<RankLayout>> layouts;
  const std::vector<MatrixPlan> plans = plans_of(config, models, layouts);
  std::vector<double> load(plans.size());
  double dearest = 0;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const FlatLayout& flat = layouts[rank]->flat();
    EXPECT_EQ(plans[rank].staging_elements(), plans[0].staging_elements());
    EXPECT_EQ(plans[rank].work_elements(), plans[0].work_elements());
    for (size_t unit = 0; unit < flat.units().size(); ++unit) {
      std::map<int, int64_t> listed;  // elements of this rank, by parameter
      for (const MatrixPlan::Matrix& matrix : plans[rank].of_unit(unit)) {
        std::vector<int> sources(static_cast<size_t>(matrix.rows * matrix.columns));
        for (const MatrixPlan::Part& part : matrix.parts) {
          int64_t elements = 0;
          for (const Rect& rect : part.rects) elements += rect.elements();
          EXPECT_EQ(elements, part.count);
          if (part.rank == static_cast<int>(rank)) listed[matrix.id.index] += part.count;
          if (!part.source) continue;
          for (const Rect& rect : part.rects)
            for (int64_t row = rect.offset[0]; row < rect.offset[0] + rect.extent[0]; ++row)
              for (int64_t column = rect.offset[1]; column < rect.offset[1] + rect.extent[1]; ++column)
                ++sources[static_cast<size_t>(row * matrix.columns + column)];
        }
        EXPECT_TRUE(std::all_of(sources.begin(), sources.end(), [](int count) { return count == 1; }))
            << flat.params()[matrix.id].shard.name << " " << matrix.index << " on rank " << rank;
        if (matrix.owner != static_cast<int>(rank)) continue;
        const double flops = newton_schulz_flops(matrix.rows, matrix.columns, 1);
        load[rank] += flops;
        dearest = std::max(dearest, flops);
      }
      // Every element that the rank owns is a part.
      for (const FlatLayout::Segment& segment : layouts[rank]->owned(flat.units()[unit])) {
        if (!is_matrix(flat.params()[segment.id])) continue;
        EXPECT_EQ(listed[segment.id.index], segment.count) << flat.params()[segment.id].shard.name;
      }
    }
  }
  EXPECT_EQ(*std::max_element(load.begin(), load.end()), plans[0].most_flops(1));
  EXPECT_LE(*std::max_element(load.begin(), load.end()) - *std::min_element(load.begin(), load.end()),
            2 * dearest);
}

TEST(MatrixPlan, EveryElementHasOneSourceAndOwnersAreBalanced) {
  for (const int stage : {0, 1})
    for (const auto& [tp, dp, ep, etp] :
         {std::tuple{1, 1, 1, 1}, {2, 2, 1, 1}, {1, 4, 2, 1}, {2, 2, 2, 1}, {4, 1, 2, 2}, {2, 4, 2, 2}}) {
      SCOPED_TRACE(fmt::format("tp {} dp {} ep {} etp {} stage {}", tp, dp, ep, etp, stage));
      expect_sound(experts_run(tp, dp, ep, etp, stage));
    }
}

TEST(MatrixPlan, GroupsOfRanksHaveOwnersOfTheirOwn) {
  PretrainConfig config = experts_run(1, 4, 1, 1, 1);
  config.zero.zero_group_size = GroupSize{2};
  expect_sound(config);
}

TEST(MatrixPlan, TakesProjectionsAndNoTables) {
  std::vector<std::unique_ptr<CutModel>> models;
  std::vector<std::unique_ptr<RankLayout>> layouts;
  const std::vector<MatrixPlan> plans = plans_of(experts_run(1, 1, 1, 1, 0), models, layouts);
  std::map<std::string, int> count;
  for (size_t unit = 0; unit < layouts[0]->flat().units().size(); ++unit)
    for (const MatrixPlan::Matrix& matrix : plans[0].of_unit(unit))
      ++count[layouts[0]->params()[matrix.id].shard.name];
  EXPECT_EQ(count["block.0.attention.query.weight"], 1);
  EXPECT_EQ(count["block.0.attention.key_value.weight"], 2);
  EXPECT_EQ(count["block.0.attention.out.weight"], 1);
  EXPECT_FALSE(count.contains("embedding.tokens.weight"));
  EXPECT_FALSE(count.contains("head.weight"));
  int experts = 0;
  for (const auto& [name, matrices] : count)
    if (name.find("experts.up.weight") != name.npos) experts += matrices;
  EXPECT_EQ(experts, 2 * 4 * 2) << "gate and up of four experts in two layers";
}

}  // namespace
}  // namespace trifold
