// Stages by numbers of layers, in models with more than one block at an end.
#include "models/stage_cut.h"

#include <gtest/gtest.h>

namespace trifold::test {
namespace {

using Cut = std::vector<StageRange>;

// Two blocks before the first of `layers` layers, and the parts of the head after the last.
Model model_of(int layers, int heads = 1) {
  Model model;
  const auto add = [&](BlockKind kind) {
    model.blocks.emplace_back();
    model.blocks.back().kind = kind;
  };
  add(BlockKind::Embedding);
  add(BlockKind::Embedding);
  for (int layer = 0; layer < layers; ++layer) add(BlockKind::Layer);
  for (int head = 0; head < heads; ++head) add(BlockKind::Head);
  return model;
}

MeshConfig mesh_of(int ranks, const char* layout) {
  MeshConfig mesh;
  mesh.pipeline_model_parallel_size = ranks;
  mesh.cut.pipeline_model_parallel_layout = layout;
  return mesh;
}

TEST(StageCut, EndsBelongToTheFirstStageAndTheLast) {
  const Model model = model_of(4);
  EXPECT_EQ(model.layers(), (std::vector<int>{2, 3, 4, 5}));
  const Cut even = cut_stages(mesh_of(2, "Ett|ttL"), model, {}, 2);
  EXPECT_EQ(even, (Cut{{0, 4}, {4, 7}}));
  EXPECT_EQ(layers_of(model, even), (std::vector<int>{2, 2}));
  const Cut ends_alone = cut_stages(mesh_of(3, "E|tttt|L"), model, {}, 3);
  EXPECT_EQ(ends_alone, (Cut{{0, 2}, {2, 6}, {6, 7}}));
  EXPECT_EQ(layers_of(model, ends_alone), (std::vector<int>{0, 4, 0}));
  EXPECT_EQ(layers_of(model, cut_stages(mesh_of(1, "EttttL"), model, {}, 1)), std::vector<int>{4});
}

TEST(StageCut, PartsOfTheHeadAreWhereALayoutSays) {
  const Model model = model_of(4, 3);
  const Cut cut = cut_stages(mesh_of(4, "Ett|t|tL|L*2"), model, {}, 4);
  EXPECT_EQ(cut, (Cut{{0, 4}, {4, 5}, {5, 7}, {7, 9}}));
  EXPECT_EQ(layers_of(model, cut), (std::vector<int>{2, 1, 1, 0}));
  EXPECT_EQ(heads_of(model, cut), (std::vector<int>{0, 0, 1, 2}));
  MeshConfig even = mesh_of(2, "");
  even.cut = {};
  even.cut.pipeline_cut = PipelineCut::Even;
  EXPECT_EQ(heads_of(model, cut_stages(even, model, {}, 2)), (std::vector<int>{0, 3}));
}

}  // namespace
}  // namespace trifold::test
