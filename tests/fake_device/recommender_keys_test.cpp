// Tables whose rows belong to keys, on a device, with rows of larger ones in pinned memory or in files: the bits of
// training on the processor. See device_test.cpp.
#include <gtest/gtest.h>

#include "core/random.h"
#include "fake_device/recommender_runs.h"
#include "fake_device/runs.h"
#include "preprocess/preprocess.h"
#include "recommend/recommender_setup.h"
#include "support/files.h"

namespace trifold::test {
namespace {

// Users come and go; there are more of them than their table has rows.
void write_clicks(const TempDir& dir) {
  const PhiloxKey key = philox_key(5, "keys");
  uint64_t at = 0;
  const auto below = [&](uint64_t end) { return philox_word(key, at++) % end; };
  std::string text = "label,I1,C1,C2\n";
  for (uint64_t sample = 0; sample < 1000; ++sample)
    text += fmt::format("{},{},{},{}\n", below(2), below(9), 1 + sample + below(900), 1 + below(60));
  write_file(dir.file("clicks.csv"), text);
  PreprocessOptions options;
  options.inputs = {dir.file("clicks.csv")};
  options.output = dir.file("clicks");
  options.format = "csv";
  options.keep_keys = true;
  ThreadPool pool(1);
  preprocess(options, pool, [](const PreprocessProgress&) {});
}

RecommendConfig with_keys(const TempDir& dir, int ranks, TableOptimizer optimizer) {
  RecommendConfig config;
  config.data.train_data = dir.file("clicks");
  config.data.table_rows = TableRows{NumberList{600, 30}};
  config.data.valid_samples = 101;
  config.model.embedding_dim = 6;
  config.model.bottom_mlp = {9, 6};
  config.model.top_mlp = {11, 1};
  config.training.global_batch_size = 35;
  config.training.eval_interval = 16;
  config.training.embedding_optimizer = optimizer;
  config.training.eps = 1e-3;
  config.lr.lr = 0.1;
  config.mesh.ranks = ranks;
  config.mesh.threads_per_rank = 1;
  config.mesh.distributed_timeout_minutes = 1;
  config.placement.placement = TablePlacements::parse(ranks == 1 ? "table" : "row,replicated");
  return config;
}

std::vector<int64_t> owners_in(const std::string& folder) {
  const CheckpointReader reader(folder);
  const std::string name = "keys/embedding.C1.weight";
  const TensorInfo* stored = reader.find(name);
  if (stored == nullptr) return {};
  std::vector<int64_t> words(static_cast<size_t>(stored->global.elements()));
  ShardSpec spec;
  spec.name = name;
  spec.global = stored->global;
  spec.local = Rect::whole(spec.global);
  const std::vector<NamedTensor> wanted{{spec, {words.data(), DType::I64, spec.global}}};
  CheckpointReader(folder).load(wanted);
  return words;
}

enum class Where : uint8_t { Device, Pinned, Files };

// Each place has the bits of the processor.
void expect_same_runs(RecommendConfig config, const std::vector<Where>& places) {
  const TempDir dir;
  config.checkpoint.save = dir.file("host");
  const Reports host = run(config);
  const auto expected = tensors_of(dir.file("host"));
  const std::vector<int64_t> owners = owners_in(dir.file("host"));
  EXPECT_EQ(std::ssize(owners), 2 * 598);
  for (const Where where : places) {
    SCOPED_TRACE(static_cast<int>(where));
    RecommendConfig other = on_device(config);
    other.checkpoint.save = dir.file(fmt::format("device{}", static_cast<int>(where)));
    if (where != Where::Device) other.placement.table_cache = 9e-6 / config.mesh.ranks;
    if (where == Where::Files) other.placement.table_storage = dir.path().string();
    const Reports device = run(other);
    EXPECT_NE(device.operations, host.operations);
    expect_equal<double>(device.numbers, host.numbers);
    EXPECT_EQ(device.rows.found < device.rows.wanted, where != Where::Device);
    const auto got = tensors_of(*other.checkpoint.save);
    for (const auto& [name, values] : expected) {
      SCOPED_TRACE(name);
      expect_equal<float>(got.at(name), values);
    }
    EXPECT_EQ(owners_in(*other.checkpoint.save), owners);
  }
}

TEST(DeviceKeys, RowsBeginAnewWhereverTheyAre) {
  const TempDir dir;
  write_clicks(dir);
  expect_same_runs(with_keys(dir, 1, TableOptimizer::Adam), {Where::Pinned});
  expect_same_runs(with_keys(dir, 2, TableOptimizer::RowwiseAdagrad),
                   {Where::Device, Where::Pinned, Where::Files});
}

// Shared memory from which rows begin is planned; owners of rows are on the host and no memory of the device.
TEST(DeviceKeys, MemoryIsThatOfPlans) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  const TempDir dir;
  write_clicks(dir);
  for (const bool cached : {false, true}) {
    RecommendConfig config = on_device(with_keys(dir, 2, TableOptimizer::Adagrad));
    if (cached) config.placement.table_cache = 9e-6;
    const RecommendJob job = prepare(config);
    const RecommenderSetup setup = recommender_setup(config, job.data.schema(), 2);
    const std::vector<RecommenderMemory> planned = memory_of_ranks(setup, placement_of(setup, 2), true);
    EXPECT_GE(planned[0].host, (598 + 28) * sizeof(KeyTable::Entry));
    run_on_ranks(config.mesh, [&](Communicator& world) {
      const Recommender model(world, setup);
      EXPECT_EQ(model.memory(), planned[static_cast<size_t>(world.rank())]) << "rank " << world.rank();
    });
  }
}

}  // namespace
}  // namespace trifold::test
