// The times of a rank's actions alone and among ranks. It needs two idle cores:
//   ctest --preset release -R parity_rehearse_times
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <barrier>
#include <mutex>
#include <thread>

#include "core/median.h"
#include "pipeline/action_times.h"
#include "plan/memory_fit.h"
#include "rehearse/lone_trainer.h"
#include "support/training.h"

namespace trifold::test {
namespace {

constexpr int kTimedSteps = 12;

// Pins the calling thread, and the threads that it starts, to one of the cores that it may use.
void pin_to(int core) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all) && core-- == 0) CPU_SET(cpu, &one);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(one), &one), 0);
}

// Actions take some tens of milliseconds.
PretrainConfig timed_run() {
  PretrainConfig config = small_run();
  config.model.num_layers = 4;
  config.model.hidden_size = 384;
  config.model.ffn_hidden_size = 1536;
  config.model.seq_length = 256;
  config.model.max_position_embeddings = 256;
  config.model.vocab_size = 1000;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(kTimedSteps + 4);
  return config;
}

struct Medians {
  double forward = 0, backward = 0;
};

Medians medians_of(Trainer& trainer) {
  ActionTimes times([&] {
    for (Stream* stream : trainer.replica().streams()) stream->synchronize();
  });
  trainer.watch(&times);
  trainer.step();
  times.restart();
  for (int step = 0; step < kTimedSteps; ++step) trainer.step();
  trainer.watch(nullptr);
  const int stage = trainer.actions().front().stage;
  return {times.median(ActionKind::F, stage), times.median(ActionKind::B, stage)};
}

using TwoRanks = std::array<Medians, 2>;

TwoRanks among_ranks(const PretrainConfig& config, const DataSource& data) {
  TwoRanks medians;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    pin_to(world.rank());
    Trainer trainer(world, config, data, nullptr);
    medians[static_cast<size_t>(world.rank())] = medians_of(trainer);
  });
  return medians;
}

// Each rank alone, on its core: `together`, at the same time, so that they share caches and clock as ranks do.
TwoRanks alone(const PretrainConfig& config, const DataSource& data, bool together) {
  const PlannedRuns planned(run_spec_here(config));
  TwoRanks medians;
  std::barrier ready(2);
  std::mutex turn;
  const auto rehearse = [&](int rank) {
    pin_to(rank);
    std::unique_lock lock(turn, std::defer_lock);
    if (!together) lock.lock();
    LoneTrainer lone(config, planned, data, nullptr, rank, {});
    if (together) ready.arrive_and_wait();
    medians[static_cast<size_t>(rank)] = medians_of(lone.trainer());
  };
  std::thread first(rehearse, 0), second(rehearse, 1);
  first.join();
  second.join();
  return medians;
}

void compare(const char* what, double real, double together, double alone) {
  fmt::print(
      "  {}: {:.3f} ms among ranks, {:.3f} ms alone beside the other ({:+.1f} %), {:.3f} ms alone ({:+.1f} %)\n",
      what, 1e3 * real, 1e3 * together, 100 * (together / real - 1), 1e3 * alone, 100 * (alone / real - 1));
  EXPECT_NEAR(together / real, 1, 0.05) << what;
}

void compare_times(const PretrainConfig& config) {
  if (available_cores() < 2) GTEST_SKIP() << "two cores are needed";
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const TwoRanks real = among_ranks(config, *data), beside = alone(config, *data, true),
                 single = alone(config, *data, false);
  for (size_t rank = 0; rank < real.size(); ++rank) {
    fmt::print("rank {} of dp {} x pp {}\n", rank, config.mesh.data_parallel_size.value_or(1),
               config.mesh.pipeline_model_parallel_size);
    compare("forward", real[rank].forward, beside[rank].forward, single[rank].forward);
    compare("backward", real[rank].backward, beside[rank].backward, single[rank].backward);
  }
}

TEST(RehearsedTimes, AreThoseAmongDataRanks) { compare_times(on_mesh(timed_run(), 2)); }

TEST(RehearsedTimes, AreThoseAmongPipelineRanks) { compare_times(on_mesh(timed_run(), 1, 1, 2)); }

}  // namespace
}  // namespace trifold::test
