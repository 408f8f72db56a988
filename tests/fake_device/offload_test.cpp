// Activations that leave a device between forward and backward for the memory of its host: no bit of a run changes, and
// the device's memory is that of a plan. See device_test.cpp.
#include "fake_device/runs.h"
#include "run/ranks.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

PretrainConfig four_layers() {
  PretrainConfig config = short_run();
  config.batch.train_iters = 3;
  config.model.num_layers = 4;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.eval.eval_iters = 1;
  return config;
}

PretrainConfig leaving(PretrainConfig config, int64_t layers) {
  config = on_device(std::move(config));
  config.mesh.cpu_offloading_num_layers = layers;
  return config;
}

void expect_same_curve(const PretrainConfig& config, int64_t layers) {
  const Curve kept = train_and_evaluate(on_device(config));
  const Curve left = train_and_evaluate(leaving(config, layers));
  EXPECT_NE(kept.losses.front(), kept.losses.back());
  EXPECT_EQ(left.losses, kept.losses);
  EXPECT_EQ(left.grad_norms, kept.grad_norms);
  EXPECT_EQ(left.valid_loss, kept.valid_loss);
}

TEST(DeviceOffload, KeepsTheBitsInEverySchedule) {
  for (const auto& [schedule, chunks] :
       {std::pair("gpipe", 1), {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}, {"zb-v", 2}}) {
    SCOPED_TRACE(schedule);
    expect_same_curve(scheduled(on_mesh(four_layers(), 1, 1, 2), schedule, chunks), chunks == 1 ? 2 : 1);
  }
}

TEST(DeviceOffload, KeepsTheBitsWithRecomputationAndZero) {
  for (const RecomputeGranularity recompute : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    PretrainConfig config = on_mesh(four_layers(), 2);
    make_llama(config.model, 2);
    config.precision.bf16 = true;
    config.mesh.recompute_granularity = recompute;
    config.zero.zero_stage = recompute == RecomputeGranularity::Full ? 3 : 1;
    config.zero.zero_min_unit_params = 1000;
    expect_same_curve(config, 3);
  }
}

TEST(DeviceOffload, KeepsTheBitsOfExpertsOverRanks) {
  PretrainConfig config = scheduled(on_mesh(four_layers(), 2, 1, 2), "1f1b");
  make_llama(config.model, 2);
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.mesh.expert_model_parallel_size = 2;
  expect_same_curve(config, 1);
}

// The differences that off-loading makes to one rank's memory on the device and on the host are those of its plan.
TEST(DeviceOffload, TakesWhatAPlanSays) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts bytes";
  struct Bytes {
    int64_t device, shared, planned, offloaded;
  };
  const auto bytes_of = [](int64_t layers) {
    PretrainConfig config = leaving(four_layers(), layers);
    config.model.num_layers = 8;
    PlanConfig plan;
    plan.run = config;
    const PlanReport report = report_of(resolve(plan));
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    Bytes bytes{};
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      trainer.step();
      EXPECT_EQ(trainer.memory().predicted_activations, report.memory[0].predicted_activations);
      EXPECT_EQ(trainer.memory().offloaded, report.memory[0].offloaded);
      EXPECT_EQ(trainer.activations_in_memory(), trainer.planned_activations_in_memory());
      const Asked now = asked();
      bytes = {static_cast<int64_t>(now.device), static_cast<int64_t>(now.shared),
               static_cast<int64_t>(report.memory[0].predicted_activations),
               static_cast<int64_t>(report.memory[0].offloaded)};
    });
    return bytes;
  };
  const Bytes none = bytes_of(0), some = bytes_of(4), all = bytes_of(8);
  EXPECT_EQ(none.offloaded, 0);
  for (const Bytes& left : {some, all}) {
    EXPECT_LT(left.planned, none.planned);
    EXPECT_EQ(none.device - left.device, none.planned - left.planned);
    EXPECT_EQ(left.shared - none.shared, left.offloaded);
  }
  EXPECT_LT(all.planned, some.planned);
}

}  // namespace
}  // namespace trifold::test
