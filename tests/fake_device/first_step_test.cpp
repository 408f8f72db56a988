// Work that waits for the whole device (allocating, loading kernels, instantiating graphs) is done before ranks wait
// for each other. See device_test.cpp.
#include <set>
#include <sstream>

#include "fake_device/runs.h"
#include "run/ranks.h"

namespace trifold::test {
namespace {

struct Made {
  int64_t workspaces = 0;  // allocated or grown
  int64_t captures = 0;
  int64_t urgent = 0;  // queues of communication
};

Made made() {
  Made made;
  fake_device_function<void(int64_t*, int64_t*, int64_t*)>("fake_device_made")(&made.workspaces,
                                                                               &made.captures, &made.urgent);
  return made;
}

// The operations that were called since the last time.
std::set<std::string> called() {
  std::istringstream lines(fake_device_function<const char*()>("fake_device_counts")());
  std::set<std::string> names;
  for (std::string name, calls, bytes; lines >> name >> calls >> bytes;) names.insert(name);
  return names;
}

std::set<std::string> without(const std::set<std::string>& all, const std::set<std::string>& known) {
  std::set<std::string> rest;
  for (const std::string& name : all)
    if (!known.contains(name)) rest.insert(name);
  return rest;
}

// Steps, and an evaluation, of which rank 0 asks what the device was asked for.
void expect_nothing_new(PretrainConfig config) {
  config.mesh.device = ComputeDevice::Cuda;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.eval.eval_iters = 1;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  called();
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, data.get());
    // Between barriers, so that all ranks are between the same steps.
    const auto alone = [&](auto look) {
      world.barrier();
      if (world.rank() == 0) look();
      world.barrier();
    };
    Made before;
    std::set<std::string> known;
    alone([&] {
      before = made();
      known = called();
      EXPECT_TRUE(known.contains("attention_backward"));
      EXPECT_FALSE(known.contains("adamw"));
    });
    trainer.step();
    alone([&] {
      const std::set<std::string> of_step = called();
      // Those of the update, which begins when all gradients are there; communicators of threads sum by
      // operations.
      known.insert({"adamw", "chunk_squares", "exact_sum", "reduce"});
      EXPECT_EQ(without(of_step, known), std::set<std::string>{});
    });
    trainer.step();
    trainer.evaluate();
    trainer.step();
    alone([&] {
      EXPECT_EQ(made().workspaces, before.workspaces);
      EXPECT_EQ(made().captures, before.captures);
      EXPECT_EQ(without(called(), known), std::set<std::string>{});
      EXPECT_GT(before.urgent, 0);
    });
  });
}

TEST(FirstStep, NoWorkSpaceGrowsAndNoKernelIsMetForTheFirstTimeBesideOtherRanks) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts allocations";
  for (const bool graphs : {false, true}) {
    PretrainConfig config = short_run();
    config.precision.bf16 = true;
    config.mesh.enable_cuda_graph = graphs;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("data ranks, stage {}, graphs {}", stage, graphs));
      PretrainConfig shared = on_mesh(config, 2);
      shared.zero.zero_stage = stage;
      expect_nothing_new(shared);
    }
    SCOPED_TRACE(fmt::format("pipeline ranks, graphs {}", graphs));
    expect_nothing_new(scheduled(on_mesh(config, 1, 1, 2), "1f1b"));
    expect_nothing_new(scheduled(on_mesh(config, 1, 1, 2), "zb-h1"));
  }
  PretrainConfig config = on_mesh(short_run(), 1, 2);
  config.mesh.sequence_parallel = true;
  {
    SCOPED_TRACE("tensor ranks");
    expect_nothing_new(config);
  }
  SCOPED_TRACE("expert ranks");
  config = on_mesh(short_run(), 2);
  make_llama(config.model, 2);
  config.model.num_experts = 4;
  config.mesh.expert_model_parallel_size = 2;
  expect_nothing_new(config);
}

// Tensor ranks overlap collectives with computation on a device, whatever cores their hosts have.
TEST(FirstStep, TensorRanksHaveAStreamBesideThatOfComputation) {
  if (!is_fake_device()) GTEST_SKIP() << "looks at streams, not at results: checked on the fake device alone";
  PretrainConfig config = on_mesh(short_run(), 1, 2);
  config.mesh.device = ComputeDevice::Cuda;
  config.mesh.threads_per_rank = 64;  // none is spare
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    EXPECT_NE(&trainer.replica().side(), &trainer.replica().compute());
  });
}

}  // namespace
}  // namespace trifold::test
