// Experts on context ranks: routers see some of the positions of each sample, balance whole ones, and ranks of all three
// axes may share experts.
#include <gtest/gtest.h>

#include <mutex>

#include "config/rules/validate.h"
#include "plan/report.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"
#include "train/evaluation.h"

namespace trifold::test {
namespace {

PretrainConfig routed_run(bool f64) {
  PretrainConfig config = small_run();
  config.model.num_layers = 3;
  config.model.disable_bias_linear = true;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_aux_loss_coeff = 0.5;
  config.model.moe_z_loss_coeff = 0.001;
  config.model.hidden_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 8;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.zero.zero_min_unit_params = 4000;
  config.eval.eval_iters = 2;
  return config;
}

struct RoutedMesh {
  int dp, tp, pp, cp, ep, zero = 0;
  ContextExchange exchange = ContextExchange::AllGather;
  const char* schedule = "1f1b";
  RecomputeGranularity recompute = RecomputeGranularity::None;

  PretrainConfig of(const PretrainConfig& base) const {
    PretrainConfig config = scheduled(on_mesh(base, dp, tp, pp, cp), schedule);
    config.mesh.sequence_parallel = tp > 1;
    if (cp > 1) config.mesh.cp_comm_type = exchange;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.recompute_granularity = recompute;
    config.zero.zero_stage = zero;
    return config;
  }
  std::string name() const {
    return fmt::format("dp {} tp {} pp {} cp {} ep {} zero {} {} {}", dp, tp, pp, cp, ep, zero,
                       name_of(exchange), schedule);
  }
};

constexpr auto kRing = ContextExchange::Ring;
constexpr auto kHeads = ContextExchange::AllToAll;

void expect_routed_alike(const Curve& cut, const Curve& one) {
  EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
  EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  EXPECT_LT(relative_error(cut.balances, one.balances), 1e-11);
  EXPECT_LT(relative_error(cut.router_sizes, one.router_sizes), 1e-11);
  EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
}

TEST(ExpertsOfContext, CurvesAgreeOnEveryMesh) {
  const Curve one = train_and_evaluate(routed_run(true));
  for (const RoutedMesh& mesh :
       {RoutedMesh{1, 1, 1, 2, 1},
        {1, 1, 1, 4, 4, 0, kRing},
        {2, 1, 1, 2, 2, 1},
        {2, 1, 1, 2, 4, 3, kHeads},
        {1, 2, 1, 2, 4},
        {2, 2, 1, 2, 8, 2, kRing},
        {1, 1, 2, 4, 2, 1, kHeads, "zb-h1"},
        {1, 2, 2, 2, 2, 1, kRing, "1f1b", RecomputeGranularity::Full},
        {2, 1, 1, 4, 4, 0, ContextExchange::AllGather, "1f1b", RecomputeGranularity::Selective}}) {
    SCOPED_TRACE(mesh.name());
    expect_routed_alike(train_and_evaluate(mesh.of(routed_run(true))), one);
  }
}

TEST(ExpertsOfContext, RoundsChangeNoSumButItsOrder) {
  const Curve one = train_and_evaluate(routed_run(true));
  for (const double factor : {0.3, 1.2}) {
    PretrainConfig config = RoutedMesh{2, 1, 1, 2, 4, 1}.of(routed_run(true));
    config.mesh.moe_buffer_factor = factor;
    SCOPED_TRACE(factor);
    expect_routed_alike(train_and_evaluate(config), one);
  }
}

// On the same mesh with the same bits.
TEST(ExpertsOfContext, ACheckpointGoesOnOnAnyMesh) {
  const TempDir folder;
  const PretrainConfig config = RoutedMesh{2, 1, 1, 2, 4, 1}.of(routed_run(true));
  const Curve whole = train(config);
  train(config, 3, "", folder.path().string());
  const Curve same = train(config, 0, folder.path().string());
  EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 3, whole.losses.end()}), kSame);
  for (const RoutedMesh& mesh : {RoutedMesh{1, 1, 1, 1, 1}, {1, 2, 1, 1, 2, 1}, {1, 1, 1, 4, 2, 3, kRing}}) {
    SCOPED_TRACE(mesh.name());
    const Curve rest = train(mesh.of(routed_run(true)), 0, folder.path().string());
    ASSERT_EQ(rest.losses.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(relative_error(rest.losses[i], whole.losses[i + 3]), 1e-11);
  }
}

// Ranks whose samples have run out go forward with those that still have some.
TEST(ExpertsOfContext, EvaluationNeedsNoFullRounds) {
  for (const int64_t samples : {1, 5, 8}) {
    const auto loss = [&](const RoutedMesh& mesh) {
      const PretrainConfig config = mesh.of(routed_run(true));
      const std::unique_ptr<DataSource> data = few_tokens(config.model);
      double seen = 0;
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Replica replica(world, config.mesh, config.model, DType::F64, config.seed);
        replica.weights().initialise(config.seed, replica.compute());
        const std::optional<LossSums> sums =
            evaluate_model(replica, *data, config.batch.micro_batch_size, samples, false, nullptr, nullptr);
        if (world.rank() == 0) seen = sums->loss / sums->weight;
      });
      return seen;
    };
    EXPECT_LT(relative_error(loss({2, 1, 1, 2, 4}), loss({1, 1, 1, 1, 1})), 1e-13) << samples;
  }
}

// Where tokens choose evenly; context ranks send each other counts of choices too, which a plan leaves out.
TEST(ExpertsOfContext, APlanForetellsWhatRanksHoldAndSend) {
  PretrainConfig config = RoutedMesh{2, 1, 1, 2, 4, 1}.of(routed_run(false));
  config.model.seq_length = config.model.max_position_embeddings.emplace(256);
  config.model.hidden_dropout = 0;
  PlanConfig plan;
  plan.run = config;
  const PlanReport report = make_plan_report(resolve(plan));
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  std::mutex mutex;
  double sent = 0;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    const Mesh& mesh = trainer.replica().mesh();
    const int64_t before = mesh.comm(kExpertShareAxes).bytes_sent();
    const int64_t before_context = mesh.comm({Axis::Cp}).bytes_sent();
    trainer.step();
    EXPECT_EQ(trainer.memory().predicted_activations, report.memory[0].predicted_activations);
    EXPECT_EQ(trainer.memory().parameters, report.memory[0].parameters);
    EXPECT_EQ(trainer.memory().optimizer, report.memory[0].optimizer);
    const auto context = static_cast<double>(mesh.comm({Axis::Cp}).bytes_sent() - before_context);
    EXPECT_NEAR(context / report.traffic[0].context, 1, 0.01);
    const std::lock_guard lock(mutex);
    sent += static_cast<double>(mesh.comm(kExpertShareAxes).bytes_sent() - before);
  });
  EXPECT_NEAR(sent / 4 / report.traffic[0].experts, 1, 0.1);
}

}  // namespace
}  // namespace trifold::test
