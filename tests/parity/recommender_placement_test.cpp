// The same training on 1, 2, 4 and 8 ranks with the tables placed in every way: losses, tables, optimizer
// state.
#include <gtest/gtest.h>

#include "parity/recommender_runs.h"

namespace trifold::test {
namespace {

class Placements : public testing::TestWithParam<std::tuple<SparseKind, bool>> {};

TEST_P(Placements, TheSameLossesAndTablesOnEveryRankCount) {
  const auto [kind, weighted] = GetParam();
  const double lr = kind == SparseKind::Sgd ? 0.3 : kind == SparseKind::Adam ? 0.01 : 0.05;
  for (const DType dtype : {DType::F64, DType::F32}) {
    RecommenderSetup setup = setup_for(kind, dtype, weighted);
    setup.placement = everywhere(PlacementKind::Table, 1);
    const Result alone = train(1, setup, lr);
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (int ranks : {2, 4, 8}) {
      std::vector<std::pair<std::string, std::vector<TablePlacement>>> placements;
      for (const PlacementKind where :
           {PlacementKind::Table, PlacementKind::Row, PlacementKind::Column, PlacementKind::Replicated})
        placements.emplace_back(name_of(where), everywhere(where, ranks));
      placements.emplace_back("mixed", mixed(ranks));
      for (const auto& [name, placement] : placements) {
        // A cut through the matrix: every placement on two ranks, on four those that are whole or mixed, on
        // eight those that are cut.
        const bool is_cut = name == "row" || name == "column";
        if (!kWhole && ((ranks == 4 && is_cut) || (ranks == 8 && !is_cut))) continue;
        SCOPED_TRACE(fmt::format("{} ranks, {}, {}", ranks, name, name_of(dtype)));
        setup.placement = placement;
        const Gap distance = gap(train(ranks, setup, lr), alone);
        EXPECT_LE(distance.losses, dtype == DType::F64 ? 1e-11 : 2e-5);
        EXPECT_LE(distance.values, dtype == DType::F64 ? 1e-10 : 2e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Placements,
    testing::Values(std::tuple{SparseKind::Sgd, false}, std::tuple{SparseKind::Sgd, true},
                    std::tuple{SparseKind::Adagrad, false}, std::tuple{SparseKind::RowwiseAdagrad, true},
                    std::tuple{SparseKind::Adam, false}, std::tuple{SparseKind::Ftrl, false}),
    [](const auto& test) {
      return test_name(std::get<0>(test.param)) + (std::get<1>(test.param) ? "Weighted" : "");
    });

// A weight behind each vector: cut by columns it is alone on a rank, or with the vector's last numbers.
TEST(RecommenderPlacement, FirstOrderTermsOnEveryRankCount) {
  for (const auto& [interaction, kind] : {std::pair{InteractionKind::Fm, SparseKind::RowwiseAdagrad},
                                          std::pair{InteractionKind::Cat, SparseKind::Adam}}) {
    RecommenderSetup setup = setup_for(kind, DType::F64, true);
    setup.model.interaction = interaction;
    setup.model.wide = true;
    const double lr = kind == SparseKind::Adam ? 0.01 : 0.05;
    setup.placement = everywhere(PlacementKind::Table, 1);
    const Result alone = train(1, setup, lr);
    EXPECT_EQ(alone.values.at("param/embedding.users.weight").size(), 300U * 7);
    EXPECT_EQ(alone.values.at("param/wide.weight").size(), 5U);
    for (const int ranks : {2, 7})
      for (const auto& placement :
           {mixed(ranks), everywhere(PlacementKind::Row, ranks), everywhere(PlacementKind::Column, ranks),
            everywhere(PlacementKind::Replicated, ranks)}) {
        SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, name_of(interaction)));
        setup.placement = placement;
        const Gap distance = gap(train(ranks, setup, lr), alone);
        EXPECT_LE(distance.losses, 1e-11);
        EXPECT_LE(distance.values, 1e-10);
      }
  }
}

// Several labels, some of which samples lack, over a shared bottom and over experts.
TEST(RecommenderPlacement, SeveralLabelsOnEveryRankCount) {
  for (const int experts : {0, 3}) {
    RecommenderSetup setup = setup_for(SparseKind::RowwiseAdagrad, DType::F64, true);
    setup.model.labels = setup.schema.labels = {"click", "like", "buy"};
    setup.schema.label_weights = {1, 0.5F, 2};
    setup.model.tower = {7, 1};
    setup.model.experts = experts;
    setup.model.wide = experts > 0;
    setup.model.interaction = InteractionKind::Fm;
    setup.placement = everywhere(PlacementKind::Table, 1);
    const Result alone = train(1, setup, 0.05);
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    EXPECT_EQ(alone.values.at("param/tower.buy.0.weight").size(), 11U * 7);
    EXPECT_EQ(alone.values.contains("param/gate.like.weight"), experts > 0);
    for (const int ranks : {2, 4})
      for (const auto& placement :
           {mixed(ranks), everywhere(PlacementKind::Table, ranks), everywhere(PlacementKind::Row, ranks),
            everywhere(PlacementKind::Column, ranks), everywhere(PlacementKind::Replicated, ranks)}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} experts", ranks, experts));
        setup.placement = placement;
        const Gap distance = gap(train(ranks, setup, 0.05), alone);
        EXPECT_LE(distance.losses, 1e-11);
        EXPECT_LE(distance.values, 1e-10);
      }
  }
}

// Bags that attention pools, of a table of their own and of one that they share, and a shared table whose bags are
// summed: three groups of tables.
TEST(RecommenderPlacement, SharedTablesAndAttentionOnEveryRankCount) {
  for (const auto& [kind, weighted] :
       {std::pair{SparseKind::RowwiseAdagrad, false}, std::pair{SparseKind::Adam, true}}) {
    RecommenderSetup setup = setup_for(kind, DType::F64, weighted);
    setup.schema.tables = {{"users", 300, 1},
                           {"items", 57, 4},
                           {"hour", 24, 1, "", {}, ""},
                           {"seen", 57, 3, "", {}, "items"},
                           {"pages", 41, 2},
                           {"last", 24, 2, "", {}, "hour"},
                           {"tiny", 3, 1}};
    setup.model.tables = 7;
    setup.model.attended = {{3, 1, "seen"}, {4, 0, "pages"}};
    setup.model.attention = {5, 1};
    setup.model.wide = weighted;
    setup.place_vectors();
    const double lr = kind == SparseKind::Adam ? 0.01 : 0.05;
    setup.placement = everywhere(PlacementKind::Table, 1);
    const Result alone = train(1, setup, lr);
    EXPECT_EQ(alone.values.at("param/attention.seen.0.weight").size(), 24U * 5);
    EXPECT_FALSE(alone.values.contains("param/embedding.seen.weight"));
    for (const int ranks : {2, 4})
      for (const auto& placement :
           {mixed(ranks), everywhere(PlacementKind::Table, ranks), everywhere(PlacementKind::Row, ranks),
            everywhere(PlacementKind::Column, ranks), everywhere(PlacementKind::Replicated, ranks)}) {
        SCOPED_TRACE(fmt::format("{} ranks, weighted {}", ranks, weighted));
        setup.placement = placement;
        const Gap distance = gap(train(ranks, setup, lr), alone);
        EXPECT_LE(distance.losses, 1e-11);
        EXPECT_LE(distance.values, 1e-10);
      }
  }
}

// Its statistics are those of the global batch, without the padding that some ranks have.
TEST(RecommenderPlacement, BatchNormOnEveryRankCount) {
  RecommenderSetup setup = setup_for(SparseKind::Adagrad, DType::F64, false);
  setup.model.bottom = {9, 8, 6};
  setup.model.top = {11, 10, 1};
  setup.model.batch_norm = true;
  setup.check_overlap = 2;
  setup.placement = everywhere(PlacementKind::Table, 1);
  const Result alone = train(1, setup, 0.05);
  EXPECT_EQ(alone.values.at("norm_mean/bottom.1.norm").size(), 8U);
  EXPECT_GT(std::abs(alone.values.at("norm_mean/top.0.norm")[0]), 1e-3);
  for (const int ranks : {2, 3, 8}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    setup.placement = mixed(ranks);
    const Gap distance = gap(train(ranks, setup, 0.05), alone);
    EXPECT_LE(distance.losses, 1e-10);
    EXPECT_LE(distance.values, 1e-9);
  }
}

// With and without them the vectors begin as the same numbers, and the weights as 0.
TEST(RecommenderPlacement, FirstOrderWeightsBeginAsZeroBehindTheSameVectors) {
  RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F32, false);
  setup.placement = everywhere(PlacementKind::Table, 1);
  const auto start = [&](bool wide) {
    setup.model.wide = wide;
    Values values;
    run_ranks(1, [&](Communicator& world) {
      Recommender model(world, setup);
      collect(model, values);
    });
    return values;
  };
  const Values plain = start(false), wide = start(true);
  for (const char* table : {"users", "items", "tiny", "pages", "hour"}) {
    const std::string name = fmt::format("param/embedding.{}.weight", table);
    const std::vector<double>&narrow = plain.at(name), &more = wide.at(name);
    for (size_t i = 0; i < more.size(); ++i)
      EXPECT_EQ(more[i], i % 7 == 6 ? 0.0 : narrow[i / 7 * 6 + i % 7]) << name << " element " << i;
  }
  for (const double weight : wide.at("param/wide.weight")) EXPECT_EQ(weight, 0);
}

// What is dropped follows from the sample, not from the rank that has it; and nothing is dropped in scores.
TEST(RecommenderDropout, DropsTheSameOnEveryRankCount) {
  RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F64, false);
  setup.model.bottom = {9, 8, 6};
  setup.model.top = {12, 11, 1};
  setup.placement = everywhere(PlacementKind::Table, 1);
  const Result plain = train(1, setup, 0.1);
  setup.model.dropout = 0.3;
  const Result alone = train(1, setup, 0.1);
  EXPECT_GT(gap(alone, plain).losses, 1e-3);
  for (const int ranks : {2, 3, 8}) {
    setup.placement = mixed(ranks);
    const Gap distance = gap(train(ranks, setup, 0.1), alone);
    EXPECT_LE(distance.losses, 1e-11) << ranks << " ranks";
    EXPECT_LE(distance.values, 1e-10) << ranks << " ranks";
  }
  std::vector<double> scores[2];
  for (const bool drops : {false, true}) {
    setup.model.dropout = drops ? 0.3 : 0;
    setup.placement = everywhere(PlacementKind::Table, 1);
    run_ranks(1, [&](Communicator& world) {
      Recommender model(world, setup);
      model.fetch([&](ClickBatchBuffer& out) { make_batch(setup.schema, 0).read(0, kBatch, out); });
      const Tensor logits = model.score().logits;
      for (int64_t i = 0; i < kBatch; ++i) scores[drops ? 1 : 0].push_back(element(logits, i));
    });
  }
  EXPECT_EQ(scores[0], scores[1]);
}

// No bottom MLP: the tables' vectors lie at the beginning of the features, on every placement.
TEST(RecommenderPlacement, WithoutDenseFeatures) {
  for (const InteractionKind interaction :
       {InteractionKind::Dot, InteractionKind::Cat, InteractionKind::Cross, InteractionKind::Fm}) {
    RecommenderSetup setup = setup_for(SparseKind::RowwiseAdagrad, DType::F64, true);
    setup.schema.dense = 0;
    setup.model.dense = 0;
    setup.model.interaction = interaction;
    setup.model.cross_layers = 2;
    setup.model.cross_rank = 3;
    EXPECT_EQ(setup.model.features(), 5 * 6);
    setup.placement = everywhere(PlacementKind::Table, 1);
    const Result alone = train(1, setup, 0.05);
    EXPECT_FALSE(alone.values.contains("param/bottom.0.weight"));
    for (const auto& placement :
         {mixed(3), everywhere(PlacementKind::Row, 3), everywhere(PlacementKind::Column, 3),
          everywhere(PlacementKind::Replicated, 3), everywhere(PlacementKind::Table, 3)}) {
      setup.placement = placement;
      const Gap distance = gap(train(3, setup, 0.05), alone);
      EXPECT_LE(distance.losses, 1e-11);
      EXPECT_LE(distance.values, 1e-10);
    }
  }
}

// Without a bottom MLP a sample's only features are its products: with two tables the logit of a top MLP of
// one layer is w (v1 . v0) + b.
TEST(RecommenderPlacement, ProductsAloneWithoutDenseFeatures) {
  RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F64, false);
  setup.schema = {0, {{"a", 2, 1}, {"b", 2, 1}}, "none", false};
  setup.model = {.dense = 0, .tables = 2, .width = 2, .bottom = {}, .top = {1}};
  setup.placement.resize(2);
  setup.global_batch = 2;
  EXPECT_EQ(setup.model.interaction_width(), 1);
  run_ranks(1, [&](Communicator& world) {
    Recommender model(world, setup);
    assign(model, {{"param/embedding.a.weight", {1, 2, 3, 4}},
                   {"param/embedding.b.weight", {5, 6, 7, 8}},
                   {"param/top.0.weight", {0.5}},
                   {"param/top.0.bias", {-1}}});
    Clicks clicks;
    clicks.labels = {0, 1};
    clicks.dense.resize(2);
    clicks.ids = {{{0}, {1}}, {{1}, {0}}};
    model.fetch([&](ClickBatchBuffer& out) { clicks.read(0, 2, out); });
    const Tensor logits = model.score().logits;
    EXPECT_DOUBLE_EQ(element(logits, 0), 0.5 * (1 * 7 + 2 * 8) - 1);
    EXPECT_DOUBLE_EQ(element(logits, 1), 0.5 * (3 * 5 + 4 * 6) - 1);
  });
}

// Tables that are not cut by rows see the same sums on every number of ranks: the same bits.
TEST(RecommenderPlacement, WholeRowsHaveTheSameBits) {
  RecommenderSetup setup = setup_for(SparseKind::Sgd, DType::F32, false);
  setup.model.bottom = {6};
  setup.model.top = {1};
  std::optional<std::vector<double>> first;
  for (const PlacementKind kind : {PlacementKind::Table, PlacementKind::Column}) {
    setup.placement = everywhere(kind, 4);
    const Result result = train(4, setup, 0.1);
    if (!first) first = result.losses;
    EXPECT_EQ(result.losses, *first);
  }
}

}  // namespace
}  // namespace trifold::test
