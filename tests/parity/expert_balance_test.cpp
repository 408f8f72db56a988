// The bias that balances experts without a loss: the same on every mesh to the last bit, saved, and without a gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"
#include "train/evaluation.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

constexpr double kRate = 0.01;

// 8 experts, of which a token chooses 4 in 2 of 4 groups.
PretrainConfig balanced_run(bool f64 = true) {
  PretrainConfig config = small_run();
  config.model.num_layers = 3;
  config.model.disable_bias_linear = true;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_router_score_function = RouterScore::Sigmoid;
  config.model.moe_router_topk_scaling_factor = 2.5;
  config.model.moe_router_num_groups = 4;
  config.model.moe_router_group_topk = 2;
  config.model.moe_router_enable_expert_bias = true;
  config.model.moe_router_bias_update_rate = kRate;
  set_four_steps(config, f64);
  return config;
}

// The biases of a trainer's ranks, whole, by name.
class Biases {
 public:
  void add(Trainer& trainer) {
    const ParamList& params = trainer.replica().layout().params();
    const std::lock_guard lock(mutex_);
    for (const ShardedOptimizer::Piece& piece : trainer.optimizer().pieces()) {
      const ParamSpec& spec = params[piece.segment.id];
      if (!spec.is_buffer || piece.kind != "param") continue;
      std::vector<double>& whole = all[spec.shard.name];
      whole.resize(static_cast<size_t>(spec.shard.global.elements()));
      for (int64_t i = 0; i < piece.values.elements(); ++i)
        whole[static_cast<size_t>(piece.segment.first + i)] =
            piece.values.dtype == DType::F64 ? piece.values.as<double>()[i] : piece.values.as<float>()[i];
    }
  }
  std::map<std::string, std::vector<double>> all;

 private:
  std::mutex mutex_;
};

struct Balanced {
  std::vector<double> losses, norms, loads;
  double valid = 0;
  std::map<std::string, std::vector<double>> biases;
};

Balanced run_balanced(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = synthetic_data(config.model, 11);
  Balanced result;
  Biases biases;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, data.get());
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        result.losses.push_back(step.loss);
        result.norms.push_back(step.grad_norm);
        result.loads.insert(result.loads.end(), step.expert_loads.begin(), step.expert_loads.end());
      }
    biases.add(trainer);
    const double loss = trainer.evaluate().loss;
    if (world.rank() == 0) result.valid = loss;
  });
  result.biases = biases.all;
  return result;
}

TEST(ExpertBalance, AStepMovesEveryBiasByTheRateTowardsTheMean) {
  PretrainConfig config = balanced_run();
  config.batch.train_iters = 1;
  const Balanced one = run_balanced(config);
  ASSERT_EQ(one.biases.size(), 3U);
  ASSERT_EQ(one.loads.size(), 3U);
  for (const auto& [name, values] : one.biases) {
    double sum_of_raised = 0;
    for (const double bias : values) {
      EXPECT_TRUE(bias == 0 || std::abs(bias) == kRate) << name << ": " << bias;
      sum_of_raised += std::abs(bias);
    }
    EXPECT_GT(sum_of_raised, 0) << name;
  }
  for (const double load : one.loads) EXPECT_GT(load, 1);
}

// Of routers as they begin, which hardly learn meanwhile.
TEST(ExpertBalance, LoadsBecomeEven) {
  PretrainConfig config = balanced_run(false);
  config.model.moe_router_topk = 2;
  config.model.moe_router_num_groups.reset();
  config.model.moe_router_group_topk.reset();
  config.lr.lr = 1e-6;
  config.lr.min_lr = 0;
  config.batch.micro_batch_size = config.batch.global_batch_size.emplace(16);
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(60);
  const auto late = [&](double rate) {  // over the last 20 steps of three layers
    config.model.moe_router_bias_update_rate = rate;
    const Balanced run = run_balanced(config);
    double sum = 0;
    for (size_t i = run.loads.size() - 60; i < run.loads.size(); ++i) sum += run.loads[i] / 60;
    for (const auto& [name, values] : run.biases)
      for (const double bias : values) EXPECT_LE(std::abs(bias), 60 * rate) << name;
    return sum;
  };
  const double left_alone = late(0), balanced = late(0.001);
  EXPECT_LT(balanced - 1, 0.75 * (left_alone - 1)) << balanced << " against " << left_alone;
}

TEST(ExpertBalance, EveryMeshMovesTheSameBiases) {
  const PretrainConfig base = balanced_run();
  const Balanced one = run_balanced(base);
  struct Place {
    int dp, tp, pp, ep, zero;
    const char* schedule = "1f1b";
    RecomputeGranularity recompute = RecomputeGranularity::None;
    int cp = 1;
    ContextExchange exchange = ContextExchange::AllGather;
  };
  constexpr RecomputeGranularity kNone = RecomputeGranularity::None;
  for (const Place& place :
       {Place{2, 1, 1, 1, 0}, Place{4, 1, 1, 4, 1}, Place{8, 1, 1, 2, 3}, Place{1, 2, 1, 2, 0},
        Place{2, 2, 2, 4, 2, "zb-h1"}, Place{2, 1, 2, 2, 3, "1f1b", RecomputeGranularity::Full},
        Place{1, 1, 1, 1, 0, "1f1b", RecomputeGranularity::Selective}, Place{1, 1, 1, 1, 0, "1f1b", kNone, 2},
        Place{2, 1, 1, 4, 1, "1f1b", kNone, 2, ContextExchange::Ring},
        Place{1, 2, 2, 4, 3, "zb-h1", RecomputeGranularity::Full, 2}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} ep {} zero {}", place.dp, place.tp, place.pp, place.cp,
                             place.ep, place.zero));
    PretrainConfig config = scheduled(on_mesh(base, place.dp, place.tp, place.pp, place.cp), place.schedule);
    if (place.cp > 1) config.mesh.cp_comm_type = place.exchange;
    config.mesh.sequence_parallel = place.tp > 1;
    config.mesh.expert_model_parallel_size = place.ep;
    config.mesh.recompute_granularity = place.recompute;
    config.zero.zero_stage = place.zero;
    const Balanced cut = run_balanced(config);
    EXPECT_EQ(cut.biases, one.biases);
    EXPECT_EQ(cut.loads, one.loads);
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
    EXPECT_LT(relative_error(cut.norms, one.norms), 1e-10);
    EXPECT_LT(relative_error(cut.valid, one.valid), 1e-11);
  }
}

// In 16 bits layers read a bias that is not rounded, of which every rank has a copy beside the optimizer's part.
TEST(ExpertBalance, ARunGoesOnExactly) {
  for (const bool bf16 : {false, true}) {
    const TempDir folder;
    PretrainConfig config = on_mesh(balanced_run(false), 4);
    config.precision.bf16 = bf16;
    config.mesh.expert_model_parallel_size = 2;
    config.zero.zero_stage = 1;
    const Curve whole = train_and_evaluate(config);
    train(config, 2, "", folder.path().string());
    TrainOptions second;
    second.load = folder.path().string();
    second.evaluate = true;
    const Curve rest = train(config, second);
    ASSERT_EQ(rest.losses.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(rest.losses[i], whole.losses[i + 2]) << "bf16 " << bf16;
      EXPECT_EQ(rest.grad_norms[i], whole.grad_norms[i + 2]) << "bf16 " << bf16;
    }
    EXPECT_EQ(rest.valid_loss, whole.valid_loss);
  }
}

TEST(ExpertBalance, AnEvaluationReadsTheBiasUnrounded) {
  const TempDir folder;
  PretrainConfig config = balanced_run(false);
  config.precision.bf16 = true;
  config.model.moe_router_bias_update_rate = 0.0123;  // whose multiples bf16 does not have
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  std::string saved;
  double expected = 0;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, data.get());
    for (int step = 0; step < 3; ++step) trainer.step();  // an odd number: biases are not 0
    expected = trainer.evaluate().loss;
    saved = trainer.save(folder.path().string());
  });
  run_on_ranks(on_mesh(config, 2).mesh, [&](Communicator& world) {
    Replica replica(world, on_mesh(config, 2).mesh, config.model, DType::BF16, config.seed);
    load_weights(replica, saved);
    const ParamList& params = replica.layout().params();
    for (int i = 0; i < params.size(); ++i)
      if (params[{i}].is_buffer) {
        const Tensor bias = replica.weights().exact({i});
        ASSERT_EQ(bias.dtype, DType::F32);
        double sum = 0;
        for (int64_t e = 0; e < bias.elements(); ++e) sum += std::abs(bias.as<float>()[e]);
        EXPECT_GT(sum, 0);
      }
    const std::optional<LossSums> sums = evaluate_model(replica, *data, 1, 16, false, nullptr, nullptr);
    EXPECT_LT(relative_error(sums->loss / sums->weight, expected), 1e-6);
  });
}

// A step that overflows moves neither weights nor biases.
TEST(ExpertBalance, ASkippedStepMovesNothing) {
  PretrainConfig config = balanced_run(false);
  config.precision.fp16 = true;
  config.precision.initial_loss_scale = 4294967296.0 * 65536.0;
  config.batch.train_iters = 1;
  const Balanced skipped = run_balanced(config);
  for (const auto& [name, values] : skipped.biases)
    for (const double bias : values) EXPECT_EQ(bias, 0) << name;
}

}  // namespace
}  // namespace trifold::test
