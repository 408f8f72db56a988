// Training on a device whose memory the host cannot touch, and whose work is asynchronous, gives the bits of training
// on the processor: accesses that bypass the streams are found here without a GPU.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "bench/bench.h"
#include "fake_device/runs.h"
#include "train/evaluation.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

// Before the module is looked for first. With another folder in TRIFOLD_MODULE_PATH the same runs follow the
// processor's on a real device (tests/gpu.sh), within what its sums round differently.
class ModuleFolder : public ::testing::Environment {
 public:
  void SetUp() override { setenv("TRIFOLD_MODULE_PATH", FAKE_DEVICE_MODULE, 0); }
};
const auto* const kModuleFolder = ::testing::AddGlobalTestEnvironment(new ModuleFolder);

TEST(Device, OneRank) {
  expect_as_on_host(train_and_evaluate(on_device(short_run())), train_and_evaluate(short_run()));
}

TEST(Device, SixteenBits) {
  PretrainConfig config = short_run();
  config.precision.bf16 = true;
  expect_as_on_host(train(on_device(config)), train(config));
}

TEST(Device, DataRanksShareEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    PretrainConfig config = on_mesh(short_run(), 2);
    config.zero.zero_stage = stage;
    expect_as_on_host(train(on_device(config)), train(config));
  }
}

TEST(Device, TensorRanks) {
  PretrainConfig config = on_mesh(short_run(), 1, 2);
  config.mesh.sequence_parallel = true;
  expect_as_on_host(train(on_device(config)), train(config));
}

TEST(Device, MlpsInTilesOfRows) {
  for (const bool bf16 : {false, true}) {
    PretrainConfig config = on_mesh(short_run(), 1, bf16 ? 2 : 1);
    config.mesh.sequence_parallel = bf16;
    config.precision.bf16 = bf16;
    if (bf16) config.mesh.recompute_granularity = RecomputeGranularity::Full;
    config.model.hidden_dropout = 0.1;
    config.mesh.tiled_mlp = 3;
    expect_as_on_host(train_and_evaluate(on_device(config)), train_and_evaluate(config));
  }
  PretrainConfig config = short_run();
  make_llama(config.model, 2);
  config.mesh.tiled_mlp = 3;
  const Curve host = train(config);
  config = on_device(config);
  const Curve device = train(config);
  expect_as_on_host(device, host);
  config.mesh.enable_cuda_graph = true;
  expect_same_bits(train(config), device);
}

TEST(Device, PipelineRanks) {
  for (const char* schedule : {"1f1b", "gpipe", "pipedream"}) {
    SCOPED_TRACE(schedule);
    PretrainConfig config = scheduled(on_mesh(short_run(), 1, 1, 2), schedule);
    config.pipeline.async_window = 5;
    config.optimizer.clip_grad = 0;
    config.model.untie_embeddings_and_output_weights = true;
    expect_as_on_host(train(on_device(config)), train(config));
  }
}

// A model that learns must learn the same; one that computes nothing would too.
void expect_same_run(PretrainConfig config) {
  config.eval.eval_iters = 2;
  const Curve host = train_and_evaluate(config);
  EXPECT_NE(host.losses.front(), host.losses.back());
  expect_as_on_host(train_and_evaluate(on_device(config)), host);
}

TEST(Device, ContextRanks) {
  for (const ContextExchange exchange :
       {ContextExchange::AllToAll, ContextExchange::AllGather, ContextExchange::Ring}) {
    SCOPED_TRACE(name_of(exchange));
    for (const bool llama : {false, true}) {
      PretrainConfig config = short_run();
      config.batch.train_iters = 3;
      if (llama) make_llama(config.model, 4);
      config.mesh.cp_comm_type = exchange;
      config.model.hidden_dropout = config.model.attention_dropout = 0.1;
      PretrainConfig cut = on_mesh(config, 2, 1, 1, 2);
      cut.zero.zero_stage = 2;
      expect_same_run(cut);
      cut = on_mesh(config, 1, 2, 2, 2);
      cut.mesh.sequence_parallel = true;
      cut.mesh.recompute_granularity = RecomputeGranularity::Selective;
      cut.precision.bf16 = true;
      expect_same_run(cut);
    }
  }
}

TEST(Device, BertOnContextRanks) {
  for (const ContextExchange exchange : {ContextExchange::AllGather, ContextExchange::Ring}) {
    PretrainConfig config = on_mesh(short_run(), 1, 1, 1, 2);
    config.batch.train_iters = 3;
    config.model.model_type = ModelType::Bert;
    config.mesh.cp_comm_type = exchange;
    expect_same_run(config);
  }
}

// Its samples end early: the padding is part of the batch.
TEST(Device, Bert) {
  PretrainConfig config = short_run();
  config.model.model_type = ModelType::Bert;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  expect_same_run(config);
  PretrainConfig cut = on_mesh(config, 2, 2, 2);
  cut.mesh.sequence_parallel = true;
  cut.zero.zero_stage = 1;
  expect_same_run(cut);
}

TEST(Device, BertWithClasses) {
  PretrainConfig config = on_mesh(short_run(), 1, 2);
  config.model.model_type = ModelType::Bert;
  config.model.bert_head = HeadKind::Classes;
  config.model.class_names = {"even", "odd"};
  config.precision.bf16 = true;
  expect_same_run(config);
}

TEST(Device, Llama) {
  PretrainConfig config = short_run();
  make_llama(config.model, 2);
  expect_same_run(config);
  config = on_mesh(config, 1, 4, 2);  // two ranks hold one key head
  config.mesh.recompute_granularity = RecomputeGranularity::Selective;
  expect_same_run(config);
}

// Rounded to 8 bits, and it still learns.
TEST(Device, ProductsInEightBits) {
  PretrainConfig config = short_run();
  config.batch.train_iters = 20;
  config.precision.bf16 = true;
  const Curve wide = train(on_device(config));
  config.precision.fp8 = true;
  const Curve narrow = train(on_device(config));
  EXPECT_NE(narrow.losses, wide.losses);
  EXPECT_LT(relative_error(narrow.losses.back(), wide.losses.back()), 0.02);
  EXPECT_EQ(train(on_device(on_mesh(config, 1, 1, 2))).losses, narrow.losses);
}

// With scales of blocks, the processor emulates what the device computes; the mesh and graphs change nothing.
TEST(Device, ProductsInEightBitsWithScalesOfBlocks) {
  PretrainConfig config = short_run();
  config.model.hidden_size = 64;
  config.model.seq_length = config.model.max_position_embeddings.emplace(128);
  config.precision.bf16 = config.precision.fp8 = true;
  config.precision.fp8_recipe = Fp8Recipe::Blockwise;
  const Curve host = train(config);
  expect_as_on_host(train(on_device(config)), host);
  config.mesh.enable_cuda_graph = true;
  expect_as_on_host(train(on_device(config)), host);
  config.precision.fp8_recipe = Fp8Recipe::Tensorwise;
  EXPECT_NE(train(on_device(config)).losses, host.losses);
}

TEST(Device, ProductsInTf32) {
  PretrainConfig config = short_run();
  config.batch.train_iters = 20;
  const Curve exact = train(on_device(config));
  config.precision.tf32 = true;
  const Curve rounded = train(on_device(config));
  EXPECT_NE(rounded.losses, exact.losses);
  EXPECT_LT(relative_error(rounded.losses.back(), exact.losses.back()), 1e-3);
  EXPECT_EQ(train(on_device(on_mesh(config, 1, 1, 2))).losses, rounded.losses);
}

TEST(Device, AllAxes) {
  PretrainConfig config = on_mesh(short_run(), 2, 2, 2);
  config.zero.zero_stage = 1;
  config.log.check_overlap = 1;
  expect_as_on_host(train(on_device(config)), train(config));
}

// The state is in the host's memory, where the device's updates reach it.
TEST(Device, StateInTheMemoryOfTheHost) {
  for (const int stage : {0, 2}) {
    SCOPED_TRACE(stage);
    PretrainConfig config = on_mesh(short_run(), 2);
    config.zero.zero_stage = stage;
    config.precision.bf16 = true;
    PretrainConfig device = on_device(config);
    device.zero.offload = Offload::parse("host");
    expect_as_on_host(train(device), train(config));
  }
}

TEST(Device, EveryOptimizer) {
  for (const char* name : {"adam", "lamb", "lars", "sgd", "adagrad"}) {
    SCOPED_TRACE(name);
    PretrainConfig config = on_mesh(short_run(), 2);
    config.optimizer.optimizer = value_named<OptimizerKind>(name).value();
    config.zero.zero_stage = 1;
    expect_same_run(config);
  }
}

// Saved on the device, resumed on the processor, and the other way round.
TEST(Device, CheckpointsGoBothWays) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("device_test_{}", getpid());
  const PretrainConfig host = short_run();
  const Curve whole = train(host);
  for (const bool device_first : {true, false}) {
    SCOPED_TRACE(device_first);
    std::filesystem::remove_all(folder);
    Curve curve = train(device_first ? on_device(host) : host, 3, "", folder.string());
    const Curve rest = train(device_first ? host : on_device(host), 0, folder.string());
    curve.losses.insert(curve.losses.end(), rest.losses.begin(), rest.losses.end());
    Curve expected = curve;
    expected.losses = whole.losses;
    expected.valid_loss.reset();
    expect_as_on_host(curve, expected);
  }
  std::filesystem::remove_all(folder);
}

// Its weights alone, as `trifold evaluate` and `finetune` load them.
TEST(Device, WeightsOfACheckpointAreLoaded) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("weights_test_{}", getpid());
  std::filesystem::remove_all(folder);
  const PretrainConfig config = short_run();
  train(config, 3, "", folder.string());
  const auto loss_on = [&](const PretrainConfig& run) {
    const std::unique_ptr<DataSource> data = few_tokens(run.model);
    double loss = 0;
    run_on_ranks(run.mesh, [&](Communicator& world) {
      Replica replica(world, run.mesh, run.model, compute_type(run.precision), run.seed);
      load_weights(replica, (folder / "step_0000000003").string());
      const LossSums sums = evaluate_model(replica, *data, 2, 6).value();
      loss = sums.loss / sums.weight;
    });
    return loss;
  };
  const double here = loss_on(config), there = loss_on(on_device(config));
  EXPECT_LT(std::abs(there - here), is_fake_device() ? 1e-300 : 1e-5 * here);
  std::filesystem::remove_all(folder);
}

// `trifold bench --what blocks`, for plans of runs on devices.
TEST(Device, BlocksAreTimed) {
  BenchConfig bench;
  bench.run = on_device(on_mesh(short_run(), 2));
  bench.warmup_iters = 1;
  bench.iters = 2;
  run_on_ranks(bench.run.mesh, [&](Communicator& world) {
    const BlockBench blocks = bench_blocks(world, bench);
    for (const BlockBench::Times& times : blocks.kinds)
      for (const double seconds : {times.f, times.i, times.w, times.b}) {
        EXPECT_GT(seconds, 0);
        EXPECT_LT(seconds, 10);
      }
    EXPECT_GT(blocks.update_seconds, 0);
    EXPECT_GT(blocks.message_latency, 0);
  });
}

// Checks that this device detects host access to its memory.
TEST(Device, TheHostCannotTouchItsMemory) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Buffer buffer(64, cuda_ops(0).device);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(buffer.data()) = 1, "");
}

TEST(Device, OrdinaryMemoryIsNoOperand) {
  if (!is_fake_device()) GTEST_SKIP() << "this device is real";
  const OpTable& ops = cuda_ops(0);
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool, ops.device);
  const Buffer buffer(64);
  EXPECT_THROW(ops.fill(stream, buffer.tensor(DType::F32, {16}), 1.0), Error);
}

}  // namespace
}  // namespace trifold::test
