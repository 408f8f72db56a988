// The device memory of recommenders is that of their plans, all allocated before the second step. See device_test.cpp.
#include <algorithm>
#include <atomic>
#include <filesystem>

#include "fake_device/runs.h"
#include "recommend/recommend.h"
#include "recommend/recommender_setup.h"
#include "run/ranks.h"

namespace trifold::test {
namespace {

RecommendConfig on_ranks(int ranks, const char* placement) {
  RecommendConfig config;
  config.model.embedding_dim = 6;
  config.model.bottom_mlp = {9, 6};
  config.model.top_mlp = {11, 1};
  config.training.global_batch_size = 2203;  // more ids than sorting counts in one tile
  config.placement.placement = TablePlacements::parse(placement);
  config.mesh.ranks = ranks;
  config.mesh.device = ComputeDevice::Cuda;
  config.mesh.threads_per_rank = 1;
  config.mesh.distributed_timeout_minutes = 1;
  return config;
}

ClickSchema four_tables() {
  ClickSchema schema;
  schema.dense = 5;
  schema.tables = {{"a", 300, 1}, {"b", 57, 4}, {"c", 3, 3}, {"d", 41, 2}};
  return schema;
}

// Bags that grow from step to step.
void read_clicks(const ClickSchema& schema, int64_t samples, int64_t step, ClickBatchBuffer& out) {
  out.fill(0, samples, samples, [&](ClickPart& part) {
    for (int64_t i = 0; i < part.samples(); ++i) {
      const int64_t sample = part.first() + i;
      part.label(i) = static_cast<float>(sample % 2);
      std::fill_n(part.dense(i), schema.dense, 0.5F);
      for (int t = 0; t < schema.table_count(); ++t) {
        const ClickTable& table = schema.table(t);
        const int count = std::min(table.max_ids, static_cast<int>(step));
        int32_t* ids = part.bag(t, i, count);
        for (int k = 0; k < count; ++k) ids[k] = static_cast<int32_t>((7 * sample + k) % table.rows);
        if (schema.weighted) std::fill_n(part.bag_weights(t, count), count, 0.5F);
      }
    }
  });
}

void train_steps(Recommender& model, const ClickSchema& schema, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    model.fetch([&, step](ClickBatchBuffer& out) { read_clicks(schema, model.samples(), step, out); });
    model.train(model.samples() * model.mesh().sizes().ranks(), step, 0.1, 0.1, nullptr);
  }
}

// After their first step, ranks ask the device for no more memory.
void expect_steady(const RecommendConfig& config, const RecommenderSetup& setup, const ClickSchema& schema) {
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Recommender model(world, setup);
    train_steps(model, schema, 1, 1);
    world.barrier();
    const int64_t before = asked().times;
    world.barrier();
    train_steps(model, schema, 2, 5);
    world.barrier();
    EXPECT_EQ(asked().times, before);
    world.barrier();
  });
}

// cudaMalloc in the middle of training waits for the device, and no plan counts it. The first batch has one
// id a bag, the last as many as there can be.
TEST(DeviceMemory, RecommendersAskForNothingAfterTheirFirstStep) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  for (const bool weighted : {false, true})
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(fmt::format("weighted {}, overlap {}", weighted, overlap));
      ClickSchema schema = four_tables();
      schema.weighted = weighted;
      const RecommendConfig config = on_ranks(2, "row,column,replicated,table");
      RecommenderSetup setup = recommender_setup(config, schema, config.mesh.ranks);
      setup.overlap = overlap;
      expect_steady(config, setup, schema);
    }
}

// The rank's own count, and where a device is what it was asked for, byte for byte.
void expect_predicted(const RecommendConfig& config, const ClickSchema& schema, bool overlap) {
  RecommenderSetup setup = recommender_setup(config, schema, config.mesh.ranks);
  setup.overlap = overlap;
  const Placement placement(embedding_tables(schema, setup.model.width, setup.model.wide), setup.placement,
                            config.mesh.ranks);
  const bool on_device = config.mesh.device == ComputeDevice::Cuda;
  const std::vector<RecommenderMemory> planned = memory_of_ranks(setup, placement, on_device);
  size_t total = 0, pinned = 0;
  for (const RecommenderMemory& rank : planned) {
    total += rank.total();
    pinned += rank.pinned;
  }
  const Asked before = on_device ? asked() : Asked{};
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Recommender model(world, setup);
    train_steps(model, schema, 1, 2);
    EXPECT_EQ(model.memory(), planned[static_cast<size_t>(world.rank())]) << "rank " << world.rank();
    world.barrier();
    if (on_device && world.rank() == 0) {
      const Asked now = asked();
      EXPECT_EQ(now.device - before.device, total);
      EXPECT_EQ(now.shared - before.shared, pinned);
    }
    world.barrier();
  });
}

TEST(DeviceMemory, PlansOfRecommendersEqualTheBytesADeviceAllocates) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  for (const char* device : {"cpu", "cuda"})
    for (const int ranks : {1, 2, 3})
      for (const char* placement : {"auto", "column", "row,column,replicated,table"})
        for (const bool other : {false, true}) {
          SCOPED_TRACE(fmt::format("{}, {} ranks, {}, {}", device, ranks, placement, other));
          ClickSchema schema = four_tables();
          schema.weighted = other;
          RecommendConfig config = on_ranks(ranks, placement);
          config.mesh.device = value_named<ComputeDevice>(device).value();
          config.model.pooling = other ? Pooling::Mean : Pooling::Sum;
          config.model.interaction = other ? InteractionKind::Fm : InteractionKind::Dot;
          config.model.wide = other;
          if (other) schema.labels = {"click", "like"};
          config.model.multi_task = other ? MultiTask::Mmoe : MultiTask::SharedBottom;
          config.placement.bf16_exchange = other && ranks > 1;
          config.precision.f64 = !other;
          config.precision.bf16 = other && ranks > 1;
          config.training.optimizer = other ? OptimizerKind::Adam : OptimizerKind::Adagrad;
          config.training.embedding_optimizer = other ? TableOptimizer::Adam : TableOptimizer::RowwiseAdagrad;
          // Thread ranks reduce-scatter in place with a buffer of the communicator, which no plan counts.
          const bool in_place = config.mesh.device == ComputeDevice::Cpu && other;
          config.zero.zero_stage = in_place ? 1 : other ? 0 : 2;
          expect_predicted(config, schema, other);
        }
}

// Rows on the device, tables in pinned memory or in files: the tables, staging areas and lists are what was planned,
// and nothing more is asked for in later steps.
TEST(DeviceMemory, OfTablesLargerThanItIsThatOfPlans) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  for (const bool in_files : {false, true})
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} ranks, files {}", ranks, in_files));
      ClickSchema schema = four_tables();
      schema.tables[0].rows = 30'000;
      schema.tables[1].rows = 90'000;
      RecommendConfig config = on_ranks(ranks, ranks == 1 ? "table" : "row,column,replicated,table");
      config.training.global_batch_size = 203;
      config.placement.table_cache = 1e-4;
      if (in_files) config.placement.table_storage = std::filesystem::temp_directory_path().string();
      const RecommenderSetup setup = recommender_setup(config, schema, ranks);
      const RecommenderMemory planned = memory_of_ranks(setup, placement_of(setup, ranks), true)[0];
      EXPECT_EQ(planned.files > 0, in_files);
      EXPECT_LT(planned.tables + planned.table_state, 1e-4 * (1 << 30) + 41 * 6 * 4 * 2);
      EXPECT_EQ(planned.pinned > 1'000'000, !in_files);
      expect_predicted(config, schema, true);
      expect_steady(config, setup, schema);
    }
}

// Sums of hot rows' parts that take more than a product's work space: 64 bags of 17,000 ids, 512 numbers
// wide. The batch that has them comes after one that has not.
TEST(DeviceMemory, UpdatesOfManyIdsTakeTheirWorkSpaceAtOnce) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  ClickSchema schema;
  schema.dense = 2;
  schema.tables = {{"hot", 3, 17'000}, {"cold", 50, 1}};
  RecommendConfig config = on_ranks(1, "table");
  config.model.embedding_dim = 512;
  config.model.bottom_mlp = {512};
  config.model.top_mlp = {1};
  config.training.global_batch_size = 64;
  config.precision.f64 = true;
  config.training.embedding_optimizer = TableOptimizer::Sgd;
  const RecommenderSetup setup = recommender_setup(config, schema, 1);
  const Placement placement(embedding_tables(schema, setup.model.width), setup.placement, 1);
  const RecommenderMemory planned = memory_of_ranks(setup, placement, true)[0];
  const Asked before = asked();
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Recommender model(world, setup);
    train_steps(model, schema, 1, 1);
    const Asked now = asked();
    EXPECT_EQ(now.device - before.device, planned.total());
    train_steps(model, schema, 17'000, 17'000);
    EXPECT_EQ(asked().times, now.times);
  });
  EXPECT_GT(planned.workspace, 2UL * 512 * 8 * (64 * 17'000 / 256));
}

// The limit applies to everything: memory other than tables leaves these less room.
TEST(DeviceMemory, ALimitCountsBatchesAndWorkSpaces) {
  RecommendConfig config = on_ranks(2, "auto");
  const ClickSchema schema = four_tables();
  const RecommenderSetup setup = recommender_setup(config, schema, 2);
  const Placement placement(embedding_tables(schema, setup.model.width), setup.placement, 2);
  size_t most = 0;
  for (const RecommenderMemory& rank : memory_of_ranks(setup, placement, true)) {
    EXPECT_GT(rank.total(), 10 * (rank.tables + rank.table_state));
    most = std::max(most, rank.total());
  }
  const auto gib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  config.placement.memory_limit = gib(most + 100'000);
  recommender_setup(config, schema, 2);
  config.placement.memory_limit = gib(most - 1000);
  EXPECT_THROW(recommender_setup(config, schema, 2), Error);
  config.mesh.device = ComputeDevice::Cpu;  // no work spaces there
  recommender_setup(config, schema, 2);
}

}  // namespace
}  // namespace trifold::test
