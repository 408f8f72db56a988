// What routers do in training alone or to micro-batches, and how tokens reach experts: on every mesh the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig router_run(bool f64) {
  PretrainConfig config = small_run();
  config.model.num_layers = 3;
  config.model.disable_bias_linear = true;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 3;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_aux_loss_coeff = 0.5;
  config.model.hidden_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 8;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 4000;
  config.eval.eval_iters = 1;
  return config;
}

struct RouterMesh {
  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1, zero = 0;
  const char* schedule = "1f1b";
  RecomputeGranularity recompute = RecomputeGranularity::None;

  PretrainConfig of(const PretrainConfig& base) const {
    PretrainConfig config = scheduled(on_mesh(base, dp, tp, pp, cp), schedule);
    config.mesh.sequence_parallel = tp > 1;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.expert_tensor_parallel_size = etp;
    config.mesh.recompute_granularity = recompute;
    config.zero.zero_stage = zero;
    return config;
  }
  std::string name() const {
    return fmt::format("dp {} tp {} pp {} cp {} ep {} etp {} zero {} {}", dp, tp, pp, cp, ep, etp, zero,
                       schedule);
  }
};

constexpr auto kSelective = RecomputeGranularity::Selective;
constexpr auto kFull = RecomputeGranularity::Full;

constexpr RouterMesh kRouterMeshes[] = {{2, 1, 1, 1, 2},
                                        {1, 2, 1, 1, 2, 1, 0, "1f1b", kSelective},
                                        {1, 1, 1, 2, 1, 2, 0, "1f1b", kFull},
                                        {2, 2, 1, 1, 2, 2, 1},
                                        {1, 2, 1, 2, 4, 1, 0},
                                        {2, 1, 2, 1, 2, 1, 3, "zb-h1", kFull}};

void expect_the_same_curve(const Curve& cut, const Curve& one) {
  EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
  EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  EXPECT_LT(relative_error(cut.balances, one.balances), 1e-11);
  EXPECT_LT(relative_error(cut.router_sizes, one.router_sizes), 1e-11);
  EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
}

void expect_bits(const Curve& cut, const Curve& one) {
  EXPECT_EQ(cut.losses, one.losses);
  EXPECT_EQ(cut.grad_norms, one.grad_norms);
  EXPECT_EQ(cut.balances, one.balances);
  EXPECT_EQ(cut.valid_loss, one.valid_loss);
}

void check_meshes(const PretrainConfig& base) {
  const Curve one = train_and_evaluate(base);
  for (const RouterMesh& mesh : kRouterMeshes) {
    SCOPED_TRACE(mesh.name());
    expect_the_same_curve(train_and_evaluate(mesh.of(base)), one);
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
  const Curve one = train_and_evaluate(RouterMesh{2, 1, 1, 1, 2}.of(base));
  for (const RouterMesh& mesh : {RouterMesh{2, 1, 2, 1, 2, 1, 1, "1f1b", kSelective},
                                 {2, 1, 2, 1, 2, 1, 2, "zb-h1", kFull},
                                 {2, 1, 1, 1, 2, 1, 3, "1f1b"}}) {
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
      const ParamList& params = trainer.replica().layout().params();
      for (int i = 0; i < params.size(); ++i)
        if (params[{i}].shard.name.find("router") != std::string::npos) {
          const Tensor weight = trainer.replica().weights().weight({i});
          std::memset(weight.data, 0, weight.bytes());
        }
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
      for (const RouterMesh& mesh : kRouterMeshes) {
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
