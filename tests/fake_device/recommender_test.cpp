// Recommenders on a device whose memory the host cannot touch: the bits of training on the processor, in
// losses, scores, tables and states. See device_test.cpp.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "clicks/synthetic/click_synthetic.h"
#include "fake_device/recommender_runs.h"
#include "recommend/recommender.h"
#include "recommend/recommender_setup.h"

namespace trifold::test {
namespace {

class DeviceRecommender : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder(const std::string& name) {
    std::filesystem::create_directories(folder_ / name);
    return (folder_ / name).string();
  }
  // The same run on the processor and on the device.
  void expect_same(RecommendConfig config) {
    std::filesystem::remove_all(folder_);
    config.checkpoint.save = folder("host");
    const Reports host = run(config);
    config.checkpoint.save = folder("device");
    const Reports device = run(on_device(config));
    EXPECT_EQ(host.numbers.size(), 6U + 6U * static_cast<size_t>(config.data.synthetic_labels));
    EXPECT_NE(device.operations, host.operations);
    expect_equal<double>(device.numbers, host.numbers);
    if (config.precision.f64) return;
    const auto expected = tensors_of(folder("host"));
    const auto got = tensors_of(folder("device"));
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      SCOPED_TRACE(name);
      expect_equal<float>(got.at(name), values);
    }
  }
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("device_recommender_{}", getpid());
};

TEST_F(DeviceRecommender, EveryPlacementOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3})
    for (const char* placement : {"table", "row", "column", "replicated", "row,column,replicated,table"}) {
      if (ranks == 1 && std::string_view(placement) != "table") continue;
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, placement));
      RecommendConfig config = small_recommender();
      config.mesh.ranks = ranks;
      config.placement.placement = TablePlacements::parse(placement);
      config.training.embedding_optimizer = TableOptimizer::RowwiseAdagrad;
      config.training.eps = kEps;
      expect_same(config);
    }
}

TEST_F(DeviceRecommender, BatchNormalisation) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    RecommendConfig config = small_recommender();
    config.mesh.ranks = ranks;
    config.model.batch_norm = true;
    expect_same(config);
  }
}

TEST_F(DeviceRecommender, EveryOptimizer) {
  for (const char* optimizer : {"sgd", "adagrad", "adam"}) {
    SCOPED_TRACE(optimizer);
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.placement.placement = TablePlacements::parse("row,column,replicated,table");
    config.training.optimizer = value_named<OptimizerKind>(optimizer).value();
    config.training.embedding_optimizer = value_named<TableOptimizer>(optimizer).value();
    if (config.training.optimizer != OptimizerKind::Sgd) config.training.eps = kEps;
    expect_same(config);
  }
}

TEST_F(DeviceRecommender, FtrlAndDecayOfTables) {
  for (const TableOptimizer optimizer : {TableOptimizer::Ftrl, TableOptimizer::RowwiseAdagrad}) {
    SCOPED_TRACE(name_of(optimizer));
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.placement.placement = TablePlacements::parse("row,column,replicated,table");
    config.training.embedding_optimizer = optimizer;
    if (optimizer == TableOptimizer::Ftrl) {
      config.training.ftrl_l1 = 0.001;
      config.training.ftrl_l2 = 0.1;
    } else {
      config.training.embedding_weight_decay = 0.1;
      config.training.eps = kEps;
    }
    expect_same(config);
  }
}

TEST_F(DeviceRecommender, EveryModel) {
  for (const InteractionKind interaction :
       {InteractionKind::Dot, InteractionKind::Cat, InteractionKind::Cross, InteractionKind::Fm}) {
    SCOPED_TRACE(name_of(interaction));
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.model.interaction = interaction;
    if (interaction == InteractionKind::Cross) config.model.cross_rank = 4;
    config.model.dropout = interaction == InteractionKind::Cross ? 0.25 : 0;
    config.training.weight_decay = 0.01;
    config.model.wide = interaction == InteractionKind::Fm || interaction == InteractionKind::Cat;
    config.model.pooling = Pooling::Mean;
    config.model.loss = interaction == InteractionKind::Cat ? ClickLossKind::Mse : ClickLossKind::Bce;
    config.precision.f64 = interaction == InteractionKind::Dot;
    config.placement.bf16_exchange = !config.precision.f64;
    expect_same(config);
  }
}

TEST_F(DeviceRecommender, SeveralLabels) {
  for (const MultiTask multi_task : {MultiTask::SharedBottom, MultiTask::Mmoe}) {
    SCOPED_TRACE(name_of(multi_task));
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.data.synthetic_labels = 3;
    config.model.multi_task = multi_task;
    config.model.tower_mlp = {7, 1};
    config.model.wide = true;
    config.model.interaction = InteractionKind::Fm;
    config.precision.f64 = multi_task == MultiTask::Mmoe;
    expect_same(config);
  }
}

TEST_F(DeviceRecommender, ProductsInTf32) {
  RecommendConfig config = on_device(small_recommender());
  const std::vector<double> exact = run(config).numbers;
  config.precision.tf32 = true;
  const std::vector<double> rounded = run(config).numbers;
  ASSERT_EQ(rounded.size(), exact.size());
  EXPECT_NE(rounded, exact);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 1e-2) << i;
}

// Weighted ids, without a thread that fetches ahead: neither can be asked for by an option.
std::vector<double> losses_of_weighted(const RecommendConfig& config, bool overlap) {
  SyntheticClickSpec spec;
  spec.dense = 5;
  spec.tables = {{"a", 300, 1}, {"b", 57, 4}, {"c", 3, 1}, {"d", 41, 2}};
  spec.samples = 400;
  spec.weighted = true;
  const SyntheticClicks clicks(spec);
  std::vector<double> losses;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    RecommenderSetup setup = recommender_setup(config, clicks.schema(), world.size());
    setup.overlap = overlap;
    const ClickFeed feed(clicks, 1, setup.global_batch);
    Recommender model(world, setup);
    for (int64_t step = 0; step < 6; ++step) {
      model.fetch([&](ClickBatchBuffer& out) { feed.read(step, world.rank(), model.samples(), out); });
      const double loss = model.train(feed.real_samples(step), step + 1, 0.1, 0.1, nullptr);
      if (world.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

TEST_F(DeviceRecommender, WeightedIds) {
  for (const bool overlap : {true, false}) {
    SCOPED_TRACE(overlap);
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.placement.placement = TablePlacements::parse("row,column,replicated,table");
    const std::vector<double> host = losses_of_weighted(config, overlap);
    EXPECT_EQ(host.size(), 6U);
    expect_equal<double>(losses_of_weighted(on_device(config), overlap), host);
  }
}

TEST_F(DeviceRecommender, RanksWithoutATable) {
  RecommendConfig config = small_recommender();
  config.mesh.ranks = 5;
  config.placement.placement = TablePlacements::parse("table");
  expect_same(config);
}

// Saved on the device, resumed on the processor, and the other way round, on other ranks' tables: the numbers
// of the processor alone.
TEST_F(DeviceRecommender, CheckpointsGoBothWays) {
  const auto numbers_of = [&](bool device_first, bool device_then) {
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 2;
    config.placement.placement = TablePlacements::parse("row,column,replicated,table");
    config.training.embedding_optimizer = TableOptimizer::Adam;
    RecommendConfig first = config;
    first.training.train_iters = 3;
    first.checkpoint.save = folder(fmt::format("from_{}_to_{}", device_first, device_then));
    Reports reports = run(device_first ? on_device(first) : first);
    config.checkpoint.load = first.checkpoint.save;
    config.placement.placement = TablePlacements::parse("column");
    const Reports rest = run(device_then ? on_device(config) : config);
    reports.numbers.insert(reports.numbers.end(), rest.numbers.begin(), rest.numbers.end());
    return reports.numbers;
  };
  const std::vector<double> host = numbers_of(false, false);
  EXPECT_EQ(host.size(), 12U);
  expect_equal<double>(numbers_of(true, false), host);
  expect_equal<double>(numbers_of(false, true), host);
}

std::string error_of(const RecommendConfig& config) {
  try {
    run(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Agreed);
    return error.what();
  }
  return "no error";
}

// Two tables of which the device holds the rows of two batches; the others are there as a whole.
RecommendConfig with_rows_elsewhere(RecommendConfig config, const std::string& folder) {
  config.data.table_rows = TableRows{NumberList{2000, 3000, 3, 41}};
  config.data.synthetic_samples = 1400;
  config.training.train_iters = 18;
  config.training.eval_interval = 9;
  config.training.global_batch_size = 35;
  config.placement.table_cache = 4e-5;
  if (!folder.empty()) config.placement.table_storage = folder;
  return config;
}

// Rows leave the device and come back: from pinned memory of the host, or from files.
TEST_F(DeviceRecommender, RowsOfLargeTablesComeAndGo) {
  for (const bool in_files : {false, true})
    for (const int ranks : {1, 2}) {
      const auto optimizer = in_files || ranks == 1 ? TableOptimizer::Adam : TableOptimizer::RowwiseAdagrad;
      if (in_files && ranks == 1) continue;
      SCOPED_TRACE(fmt::format("{}, {} ranks, files {}", name_of(optimizer), ranks, in_files));
      RecommendConfig config = small_recommender();
      config.mesh.ranks = ranks;
      config.placement.placement =
          TablePlacements::parse(ranks == 1 ? "table" : "row,column,replicated,table");
      config.training.embedding_optimizer = optimizer;
      config.training.eps = kEps;
      config = with_rows_elsewhere(config, "");
      RecommendConfig plain = config;
      plain.placement.table_cache.reset();
      std::filesystem::remove_all(folder_);
      plain.checkpoint.save = folder("host");
      const Reports host = run(plain);
      config = on_device(with_rows_elsewhere(config, in_files ? folder_.string() : ""));
      config.checkpoint.save = folder("device");
      const Reports device = run(config);
      EXPECT_EQ(host.numbers.size(), 18U + 6U);
      EXPECT_GT(device.rows.wanted, 1000);
      EXPECT_LT(device.rows.found, device.rows.wanted);
      expect_equal<double>(device.numbers, host.numbers);
      const auto got = tensors_of(folder("device"));
      for (const auto& [name, values] : tensors_of(folder("host"))) {
        SCOPED_TRACE(name);
        expect_equal<float>(got.at(name), values);
      }
      // What the run saved is what another goes on with.
      if (ranks == 1) continue;
      RecommendConfig longer = config;
      longer.checkpoint.load = folder("device");
      longer.training.train_iters = 27;
      plain.training.train_iters = 27;
      plain.checkpoint.load = folder("host");
      expect_equal<double>(run(longer).numbers, run(plain).numbers);
    }
}

TEST_F(DeviceRecommender, ANumberThatIsNotFiniteIsNamed) {
  RecommendConfig config = small_recommender();
  config.mesh.ranks = 2;
  config.placement.placement = TablePlacements::parse("table");
  config.lr.lr = 1e30;
  const std::string reports = error_of(config);
  EXPECT_NE(reports.find("the first number that is not finite appears"), std::string::npos) << reports;
  EXPECT_EQ(error_of(on_device(config)), reports);
}

}  // namespace
}  // namespace trifold::test
