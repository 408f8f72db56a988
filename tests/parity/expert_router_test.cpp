// What routers do in training alone or to micro-batches, and how tokens reach experts: on every mesh the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "support/expert_runs.h"

namespace trifold::test {
namespace {

// Of 8 experts a token chooses 3.
PretrainConfig router_run(bool f64) {
  PretrainConfig config = run_with_experts(8, f64);
  config.model.moe_router_topk = 3;
  config.model.moe_aux_loss_coeff = 0.5;
  config.batch.micro_batch_size = 2;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.eval.eval_iters = 1;
  return config;
}

constexpr auto kSelective = RecomputeGranularity::Selective;
constexpr auto kFull = RecomputeGranularity::Full;

constexpr ExpertMesh kRouterMeshes[] = {
    {.dp = 2, .ep = 2},
    {.tp = 2, .ep = 2, .recompute = kSelective},
    {.cp = 2, .etp = 2, .recompute = kFull},
    {.dp = 2, .tp = 2, .ep = 2, .etp = 2, .zero = 1},
    {.tp = 2, .cp = 2, .ep = 4},
    {.dp = 2, .pp = 2, .ep = 2, .zero = 3, .schedule = "zb-h1", .recompute = kFull}};

void expect_bits(const Curve& cut, const Curve& one) {
  EXPECT_EQ(cut.losses, one.losses);
  EXPECT_EQ(cut.grad_norms, one.grad_norms);
  EXPECT_EQ(cut.balances, one.balances);
  EXPECT_EQ(cut.valid_loss, one.valid_loss);
}

void check_meshes(const PretrainConfig& base) {
  const Curve one = train_and_evaluate(base);
  for (const ExpertMesh& mesh : kRouterMeshes) {
    SCOPED_TRACE(mesh.name());
    expect_alike(train_and_evaluate(mesh.of(base)), one);
  }
}

// With the same micro-batches: ranks that share them count all of their tokens.
TEST(ExpertRouter, LossesOfMicroBatchesDependOnNoMesh) {
  PretrainConfig base = router_run(true);
  const Curve sequences = train(base);
  base.model.moe_router_load_balancing_type = RouterBalance::AuxLoss;
  check_meshes(base);
  const Curve micros = train(base);
  EXPECT_GT(relative_error(micros.balances[0], sequences.balances[0]), 1e-4);
  EXPECT_GT(relative_error(micros.grad_norms[0], sequences.grad_norms[0]), 1e-6);
  base.batch.micro_batch_size = 1;  // a sequence each
  const Curve single = train(base);
  base.model.moe_router_load_balancing_type = RouterBalance::SequenceAuxLoss;
  expect_bits(single, train(base));
}

TEST(ExpertRouter, StagesAndSchedulesKeepTheBitsOfMicroBatches) {
  PretrainConfig base = router_run(false);
  base.model.moe_router_load_balancing_type = RouterBalance::AuxLoss;
  base.model.moe_input_jitter_eps = 0.1;
  const Curve one = train_and_evaluate(ExpertMesh{.dp = 2, .ep = 2}.of(base));
  for (const ExpertMesh& mesh :
       {ExpertMesh{.dp = 2, .pp = 2, .ep = 2, .zero = 1, .recompute = kSelective},
        {.dp = 2, .pp = 2, .ep = 2, .zero = 2, .schedule = "zb-h1", .recompute = kFull},
        {.dp = 2, .ep = 2, .zero = 3}}) {
    SCOPED_TRACE(mesh.name());
    expect_bits(train_and_evaluate(mesh.of(base)), one);
  }
}

TEST(ExpertRouter, JitterIsOfThePosition) {
  PretrainConfig base = router_run(true);
  const Curve none = train_and_evaluate(base);
  base.model.moe_input_jitter_eps = 0.2;
  check_meshes(base);
  const Curve some = train_and_evaluate(base);
  EXPECT_GT(relative_error(some.losses[0], none.losses[0]), 1e-7);
  // An evaluation has none.
  base.lr.lr = base.lr.min_lr = 1e-300;
  base.model.moe_input_jitter_eps = 0;
  const Curve still = train_and_evaluate(base);
  base.model.moe_input_jitter_eps = 0.2;
  EXPECT_EQ(train_and_evaluate(base).valid_loss, still.valid_loss);
}

// Whatever the router has learnt: here that all tokens go to the same experts.
TEST(ExpertRouter, ForcedChoicesLoadExpertsEvenly) {
  PretrainConfig base = router_run(true);
  base.model.moe_aux_loss_coeff = 0;
  base.model.seq_length = base.model.max_position_embeddings.emplace(64);
  const auto load = [](const PretrainConfig& config) {
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    double most = 0;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, data.get());
      clear_routers(trainer);
      const std::span<const double> loads = trainer.step().expert_loads;
      if (world.rank() == 0) most = *std::max_element(loads.begin(), loads.end());
    });
    return most;
  };
  EXPECT_GT(load(base), 2.6) << "3 of 8 experts have all tokens";
  base.model.moe_router_force_load_balancing = true;
  EXPECT_LT(load(base), 1.3);
  base.model.seq_length = base.model.max_position_embeddings.emplace(16);
  check_meshes(base);
}

// Tokens that are gathered bring what rows that are sent would.
TEST(ExpertRouter, GatheredTokensChangeNoBit) {
  PretrainConfig base = router_run(false);
  for (const bool shared : {false, true}) {
    if (shared) base.model.moe_shared_expert_intermediate_size = 16;
    for (const double factor : {0.0, 0.4})
      for (const ExpertMesh& mesh : kRouterMeshes) {
        SCOPED_TRACE(fmt::format("{} shared {} factor {}", mesh.name(), shared, factor));
        PretrainConfig config = mesh.of(base);
        if (factor > 0) config.mesh.moe_buffer_factor = factor;
        const Curve sent = train_and_evaluate(config);
        config.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather;
        expect_bits(train_and_evaluate(config), sent);
      }
  }
}

}  // namespace
}  // namespace trifold::test
