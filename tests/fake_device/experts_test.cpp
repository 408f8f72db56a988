// Mixtures of experts on a device: the router, the counts that the host waits for, and rows that travel between ranks
// and come in rounds give the bits of the processor. See device_test.cpp.
#include <algorithm>

#include "config/commands/validate.h"
#include "fake_device/runs.h"
#include "plan/memory_fit.h"
#include "run/ranks.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

PretrainConfig base_run() {
  PretrainConfig config = short_run();
  config.batch.train_iters = 3;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 4;
  config.eval.eval_iters = 1;
  config.zero.zero_min_unit_params = 4000;
  config.model.num_layers = 2;
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_z_loss_coeff = 0.001;
  return config;
}

PretrainConfig mixtral() {
  PretrainConfig config = base_run();
  make_llama(config.model, 2);
  config.model.moe_aux_loss_coeff = 0.01;
  return config;
}

PretrainConfig qwen3() {
  PretrainConfig config = mixtral();
  config.model.num_experts = 8;
  config.model.moe_router_topk = 3;
  config.model.hidden_dropout = 0.1;
  return config;
}

// Latent attention, a dense first layer, a shared expert, groups, and biases instead of a loss.
PretrainConfig deepseek() {
  PretrainConfig config = base_run();
  make_latent(config.model, 10);
  config.model.num_experts = 8;
  config.model.moe_layer_freq = "[0,1]";
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.moe_router_score_function = RouterScore::Sigmoid;
  config.model.moe_router_num_groups = 4;
  config.model.moe_router_group_topk = 2;
  config.model.moe_router_topk = 2;
  config.model.moe_router_topk_scaling_factor = 2.5;
  config.model.moe_router_enable_expert_bias = true;
  return config;
}

// Returns the device's curve.
Curve expect_same_mixture(const PretrainConfig& config) {
  const Curve host = train_and_evaluate(config);
  EXPECT_NE(host.losses.front(), host.losses.back());
  const Curve device = train_and_evaluate(on_device(config));
  expect_as_on_host(device, host);
  if (!is_fake_device()) return device;
  EXPECT_EQ(device.balances, host.balances);
  EXPECT_EQ(device.router_sizes, host.router_sizes);
  return device;
}

// And captured, it has the same bits.
void expect_same_mixture_captured(const PretrainConfig& config) {
  const Curve device = expect_same_mixture(config);
  PretrainConfig captured = on_device(config);
  captured.mesh.enable_cuda_graph = true;
  expect_same_bits(train_and_evaluate(captured), device);
}

PretrainConfig over_experts(PretrainConfig config, int ep, int etp = 1) {
  config.mesh.expert_model_parallel_size = ep;
  config.mesh.expert_tensor_parallel_size = etp;
  return config;
}

TEST(DeviceExperts, AllOnOneRank) {
  for (const PretrainConfig& config : {qwen3(), deepseek()}) expect_same_mixture(config);
  expect_same_mixture_captured(mixtral());
}

TEST(DeviceExperts, OverTwoRanks) {
  for (const PretrainConfig& config : {mixtral(), qwen3(), deepseek()})
    expect_same_mixture(over_experts(on_mesh(config, 2), 2));
}

TEST(DeviceExperts, OverFourRanksInEveryStageOfZero) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    PretrainConfig config = over_experts(on_mesh(stage % 2 == 0 ? qwen3() : deepseek(), 4), 4);
    config.zero.zero_stage = stage;
    expect_same_mixture(config);
  }
}

TEST(DeviceExperts, CutInParts) {
  expect_same_mixture(over_experts(on_mesh(mixtral(), 2), 1, 2));
  expect_same_mixture(over_experts(on_mesh(deepseek(), 4), 2, 2));
}

TEST(DeviceExperts, BesideTensorAndPipelineRanks) {
  PretrainConfig config = over_experts(on_mesh(deepseek(), 1, 2, 2), 2);
  config.mesh.sequence_parallel = true;
  config.precision.bf16 = true;
  expect_same_mixture(config);
  config = over_experts(scheduled(on_mesh(qwen3(), 2, 1, 2), "zb-h1"), 2);
  config.mesh.recompute_granularity = RecomputeGranularity::Full;
  expect_same_mixture(config);
}

TEST(DeviceExperts, OfPositionsThatAreCutOverRanks) {
  PretrainConfig config = over_experts(on_mesh(mixtral(), 1, 1, 1, 2), 2);
  config.mesh.cp_comm_type = ContextExchange::AllToAll;
  expect_same_mixture(config);
}

// Experts take a fraction of what tokens choose; others decide over positions of several ranks.
TEST(DeviceExperts, DropTheSameChoices) {
  const auto limited = [](PretrainConfig config, KeptChoices drop) {
    config.model.moe_expert_capacity_factor = 0.75;
    config.model.moe_token_drop_policy = drop;
    return config;
  };
  expect_same_mixture(limited(mixtral(), KeptChoices::LargestGates));
  expect_same_mixture(limited(over_experts(on_mesh(deepseek(), 2), 2), KeptChoices::FirstTokens));
  PretrainConfig config = limited(over_experts(on_mesh(qwen3(), 1, 2, 1, 2), 4), KeptChoices::LargestGates);
  config.mesh.sequence_parallel = true;
  config.mesh.cp_comm_type = ContextExchange::AllToAll;
  config.mesh.moe_buffer_factor = 0.4;
  config.precision.bf16 = true;
  expect_same_mixture(config);
  expect_same_mixture_captured(limited(qwen3(), KeptChoices::LargestGates));
}

TEST(DeviceExperts, ReadTheChoicesOfTheLastGlobalBatch) {
  for (PretrainConfig config : {mixtral(), over_experts(on_mesh(deepseek(), 2), 2)}) {
    config.model.moe_router_load_balancing_type = RouterBalance::GlobalAuxLoss;
    config.model.moe_aux_loss_coeff = 0.1;
    if (config.mesh.expert_model_parallel_size > 1)
      expect_same_mixture(config);
    else
      expect_same_mixture_captured(config);
  }
}

// The buffer is too small: rows come in rounds, whose number the device's run counts as the processor's does.
TEST(DeviceExperts, InRounds) {
  PretrainConfig config = over_experts(on_mesh(deepseek(), 2), 2);
  const Curve whole = train_and_evaluate(config);
  config.mesh.moe_buffer_factor = 0.3;
  const Curve host = train_and_evaluate(config);
  EXPECT_EQ(host.losses.front(), whole.losses.front());
  expect_as_on_host(train_and_evaluate(on_device(config)), host);
  for (const bool device : {false, true}) {
    const PretrainConfig run = device ? on_device(config) : config;
    const std::unique_ptr<DataSource> data = few_tokens(run.model);
    run_on_ranks(run.mesh, [&](Communicator& world) {
      Trainer trainer(world, run, *data, nullptr);
      const StepReport report = trainer.step();
      EXPECT_GE(report.expert_rounds, 4) << "on the device: " << device;
    });
  }
}

// The differences that a bounded buffer makes to the ranks' memory on the device are those of their plans. What the
// host keeps, the counts of rows, is not in them.
TEST(DeviceExperts, TakeWhatAPlanSays) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts bytes";
  struct Bytes {
    int64_t device = 0, planned = 0;
  };
  const auto bytes_of = [](std::optional<double> factor) {
    PretrainConfig config = on_device(over_experts(on_mesh(qwen3(), 2), 2));
    config.model.moe_ffn_hidden_size = 160;
    config.mesh.moe_buffer_factor = factor;
    PlanConfig plan;
    plan.run = config;
    Bytes bytes;
    for (const PlannedRank& rank : ranks_of(resolve(std::move(plan))))
      bytes.planned += 2 * static_cast<int64_t>(rank.memory.predicted_activations);
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      trainer.step();
      world.barrier();
      if (world.rank() == 0) bytes.device = static_cast<int64_t>(asked().device);
      world.barrier();
    });
    return bytes;
  };
  const Bytes all = bytes_of({}), bounded = bytes_of(1.0);
  EXPECT_LT(bounded.planned, all.planned);
  EXPECT_EQ(all.device - bounded.device, all.planned - bounded.planned);
}

// Every router chooses alike: all rows are of two experts, and the other ranks get none.
TEST(DeviceExperts, RanksWithoutRows) {
  PretrainConfig config = over_experts(on_mesh(mixtral(), 4), 4);
  config.model.init_method_std = 0;  // ties go to the lower index
  config.lr.lr = config.lr.min_lr = 0;
  const Curve host = train_and_evaluate(config);
  expect_as_on_host(train_and_evaluate(on_device(config)), host);
  config.mesh.moe_buffer_factor = 0.5;
  expect_as_on_host(train_and_evaluate(on_device(config)), train_and_evaluate(config));
}

// Halves of pairs that take turns, in which a device computes on one queue and exchanges on another.
TEST(DeviceExperts, HalvesOfPairsTakeTurns) {
  PretrainConfig config = mixtral();
  config.model.num_layers = 4;
  config.batch.global_batch_size = 10;
  config = over_experts(scheduled(on_mesh(config, 2, 1, 2), "dualpipe-v", 2), 2);
  const Curve apart = train_and_evaluate(config);
  config.mesh.overlap_moe_expert_parallel_comm = true;
  expect_same_bits(train_and_evaluate(config), apart);
  expect_same_mixture(config);
}

}  // namespace
}  // namespace trifold::test
