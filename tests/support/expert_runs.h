// Small training runs of mixtures of experts, for parity tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "support/compare.h"
#include "support/training.h"
#include "train/evaluation.h"

namespace trifold::test {

// Six steps of 3 layers with `experts` experts, of which a token chooses 2, and both router losses.
inline PretrainConfig run_with_experts(int64_t experts, bool f64) {
  PretrainConfig config = small_run();
  config.model.num_layers = 3;
  config.model.disable_bias_linear = true;
  config.model.num_experts = experts;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_aux_loss_coeff = 0.01;
  config.model.moe_z_loss_coeff = 0.001;
  config.model.hidden_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.zero.zero_min_unit_params = 4000;
  config.eval.eval_iters = 2;
  return config;
}

// The mesh and the options with which a run with experts is executed.
struct ExpertMesh {
  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1, zero = 0;
  const char* schedule = "1f1b";
  int chunks = 1;
  std::optional<double> factor = {};  // --moe-buffer-factor
  ContextExchange exchange = ContextExchange::AllGather;
  RecomputeGranularity recompute = RecomputeGranularity::None;

  PretrainConfig of(const PretrainConfig& base) const {
    PretrainConfig config = scheduled(on_mesh(base, dp, tp, pp, cp), schedule, chunks);
    config.mesh.sequence_parallel = tp > 1;
    if (cp > 1) config.mesh.cp_comm_type = exchange;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.expert_tensor_parallel_size = etp;
    config.mesh.moe_buffer_factor = factor;
    config.mesh.recompute_granularity = recompute;
    config.zero.zero_stage = zero;
    return config;
  }
  std::string name() const {
    return fmt::format("dp {} tp {} pp {} cp {} {} ep {} etp {} zero {} {} factor {}", dp, tp, pp, cp,
                       name_of(exchange), ep, etp, zero, schedule, factor.value_or(0));
  }
};

// Compares curves in f64 that may differ only in the order of sums.
inline void expect_alike(const Curve& cut, const Curve& one) {
  EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
  EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  EXPECT_LT(relative_error(cut.balances, one.balances), 1e-11);
  EXPECT_LT(relative_error(cut.router_sizes, one.router_sizes), 1e-11);
  EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
}

// Makes all routers of a trainer's rank give all experts equal logits, so that all tokens choose the first experts.
inline void clear_routers(Trainer& trainer) {
  const ParamList& params = trainer.replica().layout().params();
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].shard.name.find("router") != std::string::npos) {
      const Tensor weight = trainer.replica().weights().weight({i});
      std::memset(weight.data, 0, weight.bytes());
    }
}

// The loss in f64, before any training, on `samples` samples of validation data.
inline double first_evaluation(const PretrainConfig& config, int64_t samples) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  double loss = 0;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Replica replica(world, config.mesh, config.model, DType::F64, config.seed);
    replica.weights().initialise(config.seed, replica.compute());
    const std::optional<LossSums> sums =
        evaluate_model(replica, *data, config.batch.micro_batch_size, samples, false, nullptr, nullptr);
    if (world.rank() == 0) loss = sums->loss / sums->weight;
  });
  return loss;
}

}  // namespace trifold::test
