// The same training on 1, 2, 4 and 8 ranks with the tables placed in every way: losses, tables, optimizer
// state.
#include <gtest/gtest.h>

#include <array>
#include <mutex>

#include "parity/recommender_bench.h"

namespace trifold::test {
namespace {

// All of it is the program parity_whole_recommender, of the label long.
#ifdef TRIFOLD_WHOLE
constexpr int kSteps = 50;
#else
constexpr int kSteps = 12;
#endif
constexpr int64_t kBatch =
    23;  // no number of ranks divides it: some ranks have padding, with 8 one has only that

ClickSchema schema(bool weighted) {
  ClickSchema schema;
  schema.dense = 5;
  schema.weighted = weighted;
  schema.tables = {{"users", 300, 1}, {"items", 57, 4}, {"tiny", 3, 1}, {"pages", 41, 2}, {"hour", 24, 1}};
  return schema;
}

Clicks make_batch(const ClickSchema& schema, int step) {
  Clicks clicks;
  const PhiloxKey key = philox_key(static_cast<uint64_t>(step), "placement");
  uint64_t at = 0;
  const auto word = [&](uint32_t below) { return philox_word(key, at++) % below; };
  for (int64_t s = 0; s < kBatch; ++s) {
    clicks.labels.push_back(word(3) == 0 ? 1.0F : 0.0F);
    clicks.dense.emplace_back();
    for (int d = 0; d < schema.dense; ++d) clicks.dense.back().push_back(static_cast<float>(word(100)) / 50);
    clicks.ids.emplace_back();
    if (schema.weighted) clicks.weights.emplace_back();
    for (const ClickTable& table : schema.tables) {
      clicks.ids.back().emplace_back();
      if (schema.weighted) clicks.weights.back().emplace_back();
      for (uint32_t n = word(static_cast<uint32_t>(table.max_ids) + 1); n > 0; --n) {
        const auto rows = static_cast<uint32_t>(table.rows);
        clicks.ids.back().back().push_back(static_cast<int32_t>(word(rows) * word(rows) / rows));
        if (schema.weighted) clicks.weights.back().back().push_back(0.5F + static_cast<float>(word(8)) / 8);
      }
    }
  }
  return clicks;
}

RecommenderSetup setup_for(SparseKind kind, DType dtype, bool weighted) {
  RecommenderSetup setup;
  setup.schema = schema(weighted);
  setup.model = {.dense = 5, .tables = 5, .width = 6, .bottom = {9, 6}, .top = {11, 1}};
  setup.global_batch = kBatch;
  setup.dtype = dtype;
  setup.dense_optimizer.optimizer = kind == SparseKind::Adam  ? OptimizerKind::Adam
                                    : kind == SparseKind::Sgd ? OptimizerKind::Sgd
                                                              : OptimizerKind::Adagrad;
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.weight_decay = 0;
  setup.dense_optimizer.adagrad_eps = 1e-3;
  setup.dense_optimizer.adam_eps = 1e-3;
  setup.sparse.kind = kind;
  setup.sparse.eps = 1e-3;
  setup.mean = weighted;
  setup.seed = 7;
  setup.threads = 1;
  return setup;
}

struct Result {
  std::vector<double> losses;
  Values values;
};

Result train(int ranks, const RecommenderSetup& setup, double lr) {
  Result result;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& world) {
    Recommender model(world, setup);
    const auto read = [&](int step) {
      return [&, step](ClickBatchBuffer& out) {
        make_batch(setup.schema, step).read(world.rank() * model.samples(), model.samples(), out);
      };
    };
    model.fetch(read(0));
    for (int step = 0; step < kSteps; ++step) {
      const auto next = [&] {
        if (step + 1 < kSteps) model.fetch(read(step + 1));
      };
      const double loss = model.train(kBatch, step + 1, lr, lr, next);
      if (world.rank() == 0) result.losses.push_back(loss);
      model.check_replicas(fmt::format("step {}", step + 1));
    }
    const std::lock_guard lock(mutex);
    collect(model, result.values);
  });
  return result;
}

// A number of the dense part changes on one rank of four, whatever is sharded.
class Drift : public testing::TestWithParam<int> {};

TEST_P(Drift, OfACopyIsNamed) {
  RecommenderSetup setup = setup_for(SparseKind::RowwiseAdagrad, DType::F32, false);
  setup.zero_stage = GetParam();
  std::array<std::string, 4> told;
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
      told[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& text : told) EXPECT_NE(text.find("step 5: "), std::string::npos) << text;
  EXPECT_NE(told[0].find("rank 1 differs from ranks 0, 2 and 3: param/bottom.0.weight. "), std::string::npos)
      << told[0];
}

INSTANTIATE_TEST_SUITE_P(Stages, Drift, testing::Values(0, 2));

std::vector<TablePlacement> everywhere(PlacementKind kind, int ranks) {
  std::vector<TablePlacement> placement;
  for (int t = 0; t < 5; ++t) placement.push_back({kind, t % ranks, ranks});
  return placement;
}

std::vector<TablePlacement> mixed(int ranks) {
  return {{PlacementKind::Row, 1 % ranks, ranks},
          {PlacementKind::Column, 0, 2},
          {PlacementKind::Replicated, 0, 1},
          {PlacementKind::Table, ranks - 1, 1},
          {PlacementKind::Row, 0, 2}};
}

struct Gap {
  double losses = 0;
  double values = 0;
};

Gap gap(const Result& a, const Result& b) {
  Gap gap;
  EXPECT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i)
    gap.losses = std::max(gap.losses, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  EXPECT_EQ(a.values.size(), b.values.size());
  for (const auto& [name, values] : b.values) {
    double scale = 0;
    for (double v : values) scale = std::max(scale, std::abs(v));
    EXPECT_EQ(a.values.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      const double distance = std::abs(a.values.at(name)[i] - values[i]) / scale;
      EXPECT_FALSE(std::isnan(distance)) << name << " element " << i << " is nobody's";
      gap.values = std::max(gap.values, distance);
    }
  }
  return gap;
}

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
#ifndef TRIFOLD_WHOLE
        // A cut through the matrix: every placement on two ranks, on four those that are whole or mixed, on
        // eight those that are cut.
        if (ranks == 4 && (name == "row" || name == "column")) continue;
        if (ranks == 8 && name != "row" && name != "column") continue;
#endif
        SCOPED_TRACE(fmt::format("{} ranks, {}, {}", ranks, name, name_of(dtype)));
        setup.placement = placement;
        const Gap distance = gap(train(ranks, setup, lr), alone);
        EXPECT_LE(distance.losses, dtype == DType::F64 ? 1e-11 : 2e-5);
        EXPECT_LE(distance.values, dtype == DType::F64 ? 1e-10 : 2e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Placements,
                         testing::Values(std::tuple{SparseKind::Sgd, false},
                                         std::tuple{SparseKind::Sgd, true},
                                         std::tuple{SparseKind::Adagrad, false},
                                         std::tuple{SparseKind::RowwiseAdagrad, true},
                                         std::tuple{SparseKind::Adam, false}));

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
                         testing::Values(SparseKind::Sgd, SparseKind::Adagrad, SparseKind::Adam));

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
