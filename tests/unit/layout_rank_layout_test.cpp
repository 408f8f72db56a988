// The layouts of ranks, without starting any: together they save every element of a model once, on every mesh.
#include "layout/rank_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "layout/unit_actions.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"

namespace trifold::test {
namespace {

PretrainConfig small_run(int tensor, int data, int pipeline) {
  PretrainConfig run;
  run.model.num_layers = 4;
  run.model.hidden_size = 32;
  run.model.num_attention_heads = 4;
  run.model.ffn_hidden_size = 128;
  run.model.seq_length = 16;
  run.model.max_position_embeddings = 16;
  run.model.vocab_size = 50;
  run.model.make_vocab_size_divisible_by = 16;
  run.mesh.tensor_model_parallel_size = tensor;
  run.mesh.data_parallel_size = data;
  run.mesh.pipeline_model_parallel_size = pipeline;
  run.zero.zero_min_unit_params = 4000;
  return run;
}

CutModel cut_model(const PretrainConfig& run, const MeshCoords& coords, std::vector<int> ranks = {}) {
  return {run.model, run.mesh, Mesh(mesh_sizes(run.mesh), coords), run.seed, std::move(ranks)};
}

void count(const Rect& rect, const Shape& global, std::vector<int>& times) {
  for (int64_t i = 0; i < rect.elements(); ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (int dim = global.rank(); dim-- > 0; stride *= global[dim]) {
      at += (rect.offset[dim] + rest % rect.extent[dim]) * stride;
      rest /= rect.extent[dim];
    }
    ++times[static_cast<size_t>(at)];
  }
}

// The number of times that the ranks of a run save each element of each parameter.
std::map<std::string, std::vector<int>> times_saved(const PretrainConfig& run,
                                                    const std::vector<int>& ranks) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  std::map<std::string, std::vector<int>> times;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const MeshCoords coords = coords_of(rank, sizes);
    const CutModel model = cut_model(run, coords, ranks);
    const RankLayout layout(model, sizes, coords, run.zero, zero_sharing(run_spec(run)));
    for (const ParamSpec& spec : layout.params().specs())
      if (!spec.tied_to) times[spec.shard.name].resize(static_cast<size_t>(spec.shard.global.elements()), 0);
    for (const FlatLayout::Unit& unit : layout.flat().units())
      for (const FlatLayout::Segment& segment : layout.owned(unit)) {
        if (!layout.saves(segment.id)) continue;
        const ShardSpec& spec = layout.params()[segment.id].shard;
        for (const Rect& rect : rects_of_range(spec.local, segment.first, segment.first + segment.count))
          count(rect, spec.global, times[spec.name]);
      }
  }
  return times;
}

TEST(RankLayout, EveryElementIsSavedOnce) {
  struct Case {
    int tensor, data, pipeline;
    std::vector<int> rank_of_stage;
  };
  for (const Case& c : {Case{1, 1, 1, {}}, {2, 1, 2, {}}, {1, 4, 1, {}}, {2, 2, 2, {0, 1, 1, 0}}})
    for (int stage = 0; stage <= 3; ++stage)
      for (const int group : {1, 2}) {
        if (c.data % group != 0) continue;
        PretrainConfig run = small_run(c.tensor, c.data, c.pipeline);
        run.zero.zero_stage = stage;
        run.zero.zero_group_size = GroupSize{group};
        SCOPED_TRACE(fmt::format("tp {} dp {} pp {} ZeRO {} groups of {}", c.tensor, c.data, c.pipeline,
                                 stage, group));
        for (const auto& [name, times] : times_saved(run, c.rank_of_stage))
          EXPECT_EQ(std::count(times.begin(), times.end(), 1), static_cast<int64_t>(times.size())) << name;
      }
}

TEST(RankLayout, HoldsTheStagesOfItsPipelineRank) {
  const PretrainConfig run = small_run(1, 1, 2);
  const CutModel model = cut_model(run, {}, {0, 1, 1, 0});  // a V: the first and the last stage on rank 0
  const MeshSizes sizes = mesh_sizes(run.mesh);
  const RankLayout outer(model, sizes, {{Axis::Pp, 0}}, run.zero, zero_sharing(run_spec(run)));
  const RankLayout inner(model, sizes, {{Axis::Pp, 1}}, run.zero, zero_sharing(run_spec(run)));
  ASSERT_EQ(outer.stages().size(), 2U);
  EXPECT_EQ(outer.stages()[1].index, 3);
  EXPECT_EQ(inner.stages()[0].blocks.front().index, model.stages[1].begin);
  EXPECT_EQ(outer.pipeline().rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
  // Both uses of the token embedding are on one rank: it is stored once, and the other rank has none of it.
  const int64_t all = model.model.params.stored_elements();
  EXPECT_EQ(outer.params().stored_elements() + inner.params().stored_elements(), all);
  // On two ranks it is stored twice.
  const CutModel apart = cut_model(run, {});
  int64_t elements = 0;
  for (int rank = 0; rank < 2; ++rank)
    elements += RankLayout(apart, sizes, {{Axis::Pp, rank}}, run.zero, zero_sharing(run_spec(run)))
                    .params()
                    .stored_elements();
  EXPECT_EQ(elements, all + 64 * 32);  // rows padded to a multiple of 16
}

TEST(RankLayout, IsAValue) {
  const PretrainConfig run = small_run(1, 2, 1);
  const CutModel model = cut_model(run, {});
  std::vector<RankLayout> layouts;
  for (int rank = 0; rank < 2; ++rank)
    layouts.emplace_back(model, mesh_sizes(run.mesh), coords_of(rank, mesh_sizes(run.mesh)), run.zero,
                         zero_sharing(run_spec(run)));
  const RankLayout copy = layouts[1];
  layouts.clear();
  EXPECT_EQ(&copy.params(), &copy.flat().params());
  EXPECT_EQ(copy.params().stored_elements(), model.model.params.stored_elements());
  EXPECT_EQ(copy.coords()[Axis::Dp], 1);
}

// Two stages on the last rank: the forward of the last stage comes before the backward of the other one. A loss of one
// block adds to its gradients there, so they are in memory while those of the other stage are reduced; parts of an
// output layer do not.
TEST(RankLayout, GradientsOfPartsOfTheOutputLayerAreNotThereInForward) {
  for (const int parts : {1, 2}) {
    PretrainConfig run = small_run(1, 2, 2);
    run.model.num_layers = 8;
    run.model.untie_embeddings_and_output_weights = true;
    run.mesh.pipeline_vocab_parts = parts;
    run.zero.zero_stage = 2;
    run.zero.zero_min_unit_params = 1;
    const CutModel model = cut_model(run, {}, {0, 1, 0, 1});
    const MeshSizes sizes = mesh_sizes(run.mesh);
    const RankLayout layout(model, sizes, {{Axis::Pp, 1}}, run.zero, zero_sharing(run_spec(run)));
    RankPlan row;
    const auto blocks_of = [&](int stage) { return model.stages[static_cast<size_t>(stage)].size(); };
    const auto backward = [&](int stage, int micro) {
      for (int block = blocks_of(stage); block-- > 0;) {
        row.push_back({ActionKind::B, stage, block, micro});
        row.push_back({ActionKind::ReduceGrad, stage, block, micro});
      }
    };
    for (int micro = 0; micro < 2; ++micro) {
      row.push_back({ActionKind::F, 1, Action::kAll, micro});
      row.push_back({ActionKind::F, 3, Action::kAll, micro});
      if (micro == 1) backward(1, 0);
      backward(3, micro);
    }
    backward(1, 1);
    // Each is in memory with its neighbours in the order of reductions; those of the loss also with the others of stage
    // 1, and with those that were reduced before its second forward.
    const int neighbours = blocks_of(1) + blocks_of(3);
    const int with_the_loss = parts == 1 ? blocks_of(1) : 0;
    ASSERT_GE(blocks_of(1), 2);
    EXPECT_EQ(units_reduced_together(row, layout.flat(), layout.stages()).size(),
              static_cast<size_t>(neighbours + with_the_loss))
        << parts;
  }
}

// A layer that sums its biases' gradients while it computes that of its input.
class SumsBiasesEarly final : public Layer {
 public:
  Tensor forward(Run&, Tensor x, Saved&) const override { return x; }
  Tensor backward_input(Run&, Tensor dy, Saved&) const override { return dy; }
  void backward_weight(Run&, Saved&) const override {}
  bool adds_in_backward_input() const override { return true; }
};

// Block 1's unit is there from its I, while those of all later blocks are reduced after their W.
TEST(RankLayout, GradientsThatILetsGrowAreThereFromIOn) {
  PretrainConfig run = small_run(1, 2, 1);
  run.model.untie_embeddings_and_output_weights = true;
  run.zero.zero_min_unit_params = 1;
  const CutModel model = cut_model(run, {});
  const RankLayout layout(model, mesh_sizes(run.mesh), {}, run.zero, zero_sharing(run_spec(run)));
  std::vector<Stage> stages = layout.stages();
  RankPlan row{{ActionKind::F, 0, Action::kAll, 0}, {ActionKind::I, 0, Action::kAll, 0}};
  const int blocks = static_cast<int>(stages[0].blocks.size());
  for (int block = blocks; block-- > 0;) {
    row.push_back({ActionKind::W, 0, block, 0});
    row.push_back({ActionKind::ReduceGrad, 0, block, 0});
  }
  const SumsBiasesEarly early;
  const size_t neighbours = units_reduced_together(row, layout.flat(), stages).size();
  EXPECT_EQ(neighbours, static_cast<size_t>(blocks - 1));
  stages[0].blocks[1].layer = &early;
  // With every later block's, of which the next one's is a neighbour anyway.
  EXPECT_EQ(units_reduced_together(row, layout.flat(), stages).size(),
            neighbours + static_cast<size_t>(blocks - 3));
}

TEST(RankLayout, NeedsAStage) {
  const PretrainConfig run = small_run(1, 1, 2);
  const CutModel model = cut_model(run, {}, {0, 0});
  EXPECT_THROW(
      RankLayout(model, mesh_sizes(run.mesh), {{Axis::Pp, 1}}, run.zero, zero_sharing(run_spec(run))), Error);
}

}  // namespace
}  // namespace trifold::test
