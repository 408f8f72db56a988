// Recommenders on several ranks: bytes of the exchange, sharded states of the MLPs, bf16, and copies that differ.
#include <gtest/gtest.h>

#include <array>

#include "parity/recommender_runs.h"

namespace trifold::test {
namespace {

// A number of the dense part changes on one rank of four, whatever is sharded.
class Drift : public testing::TestWithParam<int> {};

TEST_P(Drift, OfACopyIsNamed) {
  RecommenderSetup setup = setup_for(SparseKind::RowwiseAdagrad, DType::F32, false);
  setup.zero_stage = GetParam();
  std::array<std::string, 4> texts;
  run_ranks(4, [&](Communicator& world) {
    RecommenderSetup mine = setup;
    mine.placement.assign(5, {PlacementKind::Replicated, 0, 1});
    Recommender model(world, mine);
    model.check_replicas("the beginning");
    if (world.rank() == 1) model.weight("bottom.0.weight").flat().as<float>()[0] += 1;
    try {
      model.check_replicas("step 5");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Agreed);
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) EXPECT_NE(text.find("step 5: "), std::string::npos) << text;
  EXPECT_NE(texts[0].find("rank 1 differs from ranks 0, 2 and 3: param/bottom.0.weight. "), std::string::npos)
      << texts[0];
}

INSTANTIATE_TEST_SUITE_P(Stages, Drift, testing::Values(0, 2),
                         [](const auto& test) { return fmt::format("Stage{}", test.param); });

// Vectors that travel in bf16 change the curve a little, and not by much.
TEST(RecommenderExchange, InBfloat16) {
  RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F32, false);
  setup.placement = mixed(2);
  const Result exact = train(2, setup, 0.3);
  setup.bf16_exchange = true;
  const Gap distance = gap(train(2, setup, 0.3), exact);
  EXPECT_GT(distance.losses, 1e-7);
  EXPECT_LT(distance.losses, 3e-2);
}

// What leaves a rank: (B - b) W numbers of vectors forward and as many gradients from all those for whom this
// rank's samples were looked up elsewhere; ids and lengths as id_exchange.h says.
TEST(RecommenderExchange, BytesAreThoseOfTheFormula) {
  for (const bool narrow : {false, true}) {
    RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F32, false);
    constexpr int kRanks = 4;
    setup.placement = everywhere(PlacementKind::Table, kRanks);
    setup.bf16_exchange = narrow;
    run_ranks(kRanks, [&](Communicator& world) {
      Recommender model(world, setup);
      int64_t ids_elsewhere = 0;
      const Clicks clicks = make_batch(setup.schema, 0);
      for (int64_t s = world.rank() * model.samples();
           s < std::min(kBatch, (world.rank() + 1) * model.samples()); ++s)
        for (int t = 0; t < 5; ++t)
          if (t % kRanks != world.rank())
            ids_elsewhere +=
                static_cast<int64_t>(clicks.ids[static_cast<size_t>(s)][static_cast<size_t>(t)].size());
      model.fetch(
          [&](ClickBatchBuffer& out) { clicks.read(world.rank() * model.samples(), model.samples(), out); });
      model.train(kBatch, 1, 0.1, 0.1, {});
      const int64_t b = model.samples(), width = 6, tables = world.rank() == 0 ? 2 : 1;
      const int64_t others = 5 - tables;
      const int64_t number = narrow ? 2 : 4;
      EXPECT_EQ(model.traffic().vectors,
                number * ((kRanks - 1) * b * tables * width /* out */ + b * others * width /* back */));
      EXPECT_EQ(model.traffic().ids, 4 * (b * others + ids_elsewhere) + 8 * (kRanks - 1));
    });
  }
}

// Sharding changes no bit, with or without clipping, and takes the memory of the plan.
class Stages : public testing::TestWithParam<SparseKind> {};

TEST_P(Stages, ChangeNoBit) {
  RecommenderSetup setup = setup_for(GetParam(), DType::F32, true);
  setup.model.bottom = {130, 6};  // a block of several grains
  for (const int ranks : {2, 3, 4})
    for (const double clip : {0.0, 0.05}) {
      setup.placement = mixed(ranks);
      setup.clip_grad = clip;
      setup.bf16 = clip > 0;
      setup.zero_stage = 0;
      const Result whole = train(ranks, setup, 0.05);
      for (const int stage : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} ranks, --clip-grad {}, stage {}", ranks, clip, stage));
        setup.zero_stage = stage;
        const Result shared = train(ranks, setup, 0.05);
        EXPECT_EQ(shared.losses, whole.losses);
        EXPECT_EQ(shared.values, whole.values);
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Optimizers, Stages,
                         testing::Values(SparseKind::Sgd, SparseKind::Adagrad, SparseKind::Adam),
                         [](const auto& test) { return test_name(test.param); });

TEST(RecommenderZero, EachStageHoldsLess) {
  constexpr int kRanks = 4;
  RecommenderSetup setup = setup_for(SparseKind::Adam, DType::F32, false);
  setup.model.bottom = {700, 6};
  setup.model.top = {500, 1};
  setup.placement = mixed(kRanks);
  const Placement placement(embedding_tables(setup.schema, 6), setup.placement, kRanks);
  std::vector<size_t> dense;
  for (const int stage : {0, 1, 2}) {
    setup.zero_stage = stage;
    const std::vector<RecommenderMemory> planned = memory_of_ranks(setup, placement, false);
    dense.push_back(planned[0].dense);
    run_ranks(kRanks, [&](Communicator& world) {
      Recommender model(world, setup);
      EXPECT_EQ(model.memory(), planned[static_cast<size_t>(world.rank())]) << "stage " << stage;
    });
  }
  // Adam's two moments are half of what a rank holds; of the other half the gradients are a half.
  EXPECT_LT(dense[1], dense[0] * 2 / 3);
  EXPECT_LT(dense[2], dense[1]);
}

// MLPs and cross networks in bf16: the curve of f32 within the bounds of transformers (precision_test.cpp),
// on every number of ranks.
TEST(RecommenderPrecision, MlpsInBf16TrainLikeF32) {
  for (const InteractionKind interaction :
       {InteractionKind::Dot, InteractionKind::Cat, InteractionKind::Cross, InteractionKind::Fm})
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("interaction {}, {} ranks", static_cast<int>(interaction), ranks));
      RecommenderSetup setup = setup_for(SparseKind::Adagrad, DType::F32, false);
      setup.model.interaction = interaction;
      setup.model.cross_layers = 2;
      setup.model.cross_rank = 3;
      setup.placement = ranks == 1 ? everywhere(PlacementKind::Table, 1) : mixed(ranks);
      const Result exact = train(ranks, setup, 0.02);
      setup.bf16 = true;
      const Result rounded = train(ranks, setup, 0.02);
      for (size_t i = 0; i < exact.losses.size(); ++i)
        EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.01 * exact.losses[i]) << "step " << i + 1;
      EXPECT_NE(rounded.losses.back(), exact.losses.back());
    }
}

}  // namespace
}  // namespace trifold::test
