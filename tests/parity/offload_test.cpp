// --offload: state in a file changes no bit of a run, and does not take memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "files/file_memory.h"
#include "parity/zero_runs.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

std::string folder() { return fs::temp_directory_path().string(); }

PretrainConfig offloaded(PretrainConfig config) {
  config.zero.offload = Offload::parse(folder());
  return config;
}

// Several windows in the largest parameter, and several units.
PretrainConfig run_of(int stage) {
  PretrainConfig config = on_mesh(small_run(), 2);
  config.model.vocab_size = 40'000;
  config.model.hidden_size = 64;
  config.model.ffn_hidden_size = 256;
  config.batch.train_iters = 4;
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 40'000;
  return config;
}

TEST(Offload, KeepsTheBits) {
  for (int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_same_bits(train(run_of(stage)), train(offloaded(run_of(stage))));
  }
}

TEST(Offload, KeepsTheBitsOfMastersLambAndAsynchronousVersions) {
  PretrainConfig bf16 = run_of(3);
  bf16.precision.bf16 = true;
  expect_same_bits(train(bf16), train(offloaded(bf16)));
  PretrainConfig lamb = run_of(1);
  lamb.optimizer.optimizer = OptimizerKind::Lamb;
  expect_same_bits(train(lamb), train(offloaded(lamb)));
  PretrainConfig async = scheduled(on_mesh(small_run(), 1, 1, 2), "pipedream");
  async.optimizer.clip_grad = 0;
  async.pipeline.async_window = 10;
  expect_same_bits(train(async), train(offloaded(async)));
}

TEST(Offload, ContinuesACheckpointOfEitherKind) {
  const fs::path root = fs::temp_directory_path() / fmt::format("offload_test_{}", getpid());
  const PretrainConfig plain = run_of(3);
  const Curve whole = train(plain);
  for (const bool first : {false, true}) {
    fs::remove_all(root);
    train(first ? offloaded(plain) : plain, 2, "", root.string());
    const Curve rest = train(first ? plain : offloaded(plain), 0, root.string());
    ASSERT_EQ(rest.losses.size(), 2U);
    EXPECT_EQ(rest.losses[0], whole.losses[2]);
    EXPECT_EQ(rest.losses[1], whole.losses[3]);
  }
  fs::remove_all(root);
}

// Bytes of this process, mapped files among them: VmRSS now, VmHWM at most so far.
double resident(const std::string& what = "VmRSS:") {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(what, 0) == 0) return 1024 * std::stod(line.substr(what.size()));
  return 0;
}

struct Resident {
  double now = 0;  // after two steps
  double most = 0;
  MemoryReport memory;
};

Resident held_by(const PretrainConfig& config) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  Resident held;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.step();
    trainer.step();
    world.barrier();
    if (world.rank() == 0) held = {resident(), resident("VmHWM:"), trainer.memory()};
    world.barrier();
  });
  return held;
}

// 12 million parameters: weights and state of a rank's half are 70 MB. What is in memory while it is used
// counts in the plan, so the plan is of the peak; between uses nothing of it is there.
TEST(Offload, ResidentMemoryFallsByThePlannedBytes) {
  PretrainConfig config = run_of(3);
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 1024;
  config.batch.train_iters = 2;
  const Resident file = held_by(offloaded(config));  // first, for the peak of a process only grows
  const Resident plain = held_by(config);
  EXPECT_EQ(plain.memory.offloaded, 0U);
  EXPECT_GT(file.memory.offloaded, 60'000'000U);
  EXPECT_NEAR((plain.now - file.now) / (2 * static_cast<double>(file.memory.offloaded)), 1, 0.1);
  const double planned = 2 * (static_cast<double>(plain.memory.predicted_total()) -
                              static_cast<double>(file.memory.predicted_total()));
  EXPECT_GT(plain.most - file.most, 0.9 * planned);
}

TEST(FileMemory, StartsAtZeroAndKeepsItsValuesWhenReleased) {
  const size_t bytes = size_t{8} << 20;
  const FileMemory memory(folder(), bytes);
  EXPECT_EQ(memory.data()[12345], std::byte{0});
  for (size_t i = 0; i < bytes; i += 1000) memory.data()[i] = std::byte{7};
  const double before = resident();
  memory.release(0, bytes);
  EXPECT_LT(resident(), before - 0.9 * static_cast<double>(bytes));
  memory.expect(5000, bytes);
  for (size_t i = 0; i < bytes; i += 1000) ASSERT_EQ(memory.data()[i], std::byte{7});
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST(FileMemory, ReportsProblems) {
  const auto missing = message_of([] { check_offload_folder("/nowhere/at/all"); });
  EXPECT_NE(missing.find("--offload /nowhere/at/all"), std::string::npos) << missing;
  const auto full = message_of([] { FileMemory(folder(), size_t{1} << 58); });
  EXPECT_NE(full.find("are free"), std::string::npos) << full;
  // On the ranks it is an error of the run's input, too.
  PretrainConfig config = small_run();
  config.zero.offload = Offload::parse("/nowhere/at/all");
  EXPECT_NE(message_of([&] { train(config); }), "");
}

}  // namespace
}  // namespace trifold::test
