// Experts on context ranks: routers see some of the positions of each sample, balance whole ones, and ranks of all
// three axes may share experts.
#include <gtest/gtest.h>

#include <numeric>

#include "support/expert_runs.h"
#include "support/files.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

PretrainConfig routed_run(bool f64) {
  PretrainConfig config = run_with_experts(8, f64);
  config.model.moe_aux_loss_coeff = 0.5;
  config.batch.micro_batch_size = 2;
  return config;
}

constexpr auto kRing = ContextExchange::Ring;
constexpr auto kHeads = ContextExchange::AllToAll;

TEST(ExpertsOfContext, CurvesAgreeOnEveryMesh) {
  const Curve one = train_and_evaluate(routed_run(true));
  for (const ExpertMesh& mesh :
       {ExpertMesh{.cp = 2},
        {.cp = 4, .ep = 4, .exchange = kRing},
        {.dp = 2, .cp = 2, .ep = 2, .zero = 1},
        {.dp = 2, .cp = 2, .ep = 4, .zero = 3, .exchange = kHeads},
        {.tp = 2, .cp = 2, .ep = 4},
        {.dp = 2, .tp = 2, .cp = 2, .ep = 8, .zero = 2, .exchange = kRing},
        {.pp = 2, .cp = 4, .ep = 2, .zero = 1, .schedule = "zb-h1", .exchange = kHeads},
        {.tp = 2,
        .pp = 2,
        .cp = 2,
        .ep = 2,
        .zero = 1,
        .exchange = kRing,
        .recompute = RecomputeGranularity::Full},
        {.dp = 2, .cp = 4, .ep = 4, .recompute = RecomputeGranularity::Selective}}) {
    SCOPED_TRACE(mesh.name());
    expect_alike(train_and_evaluate(mesh.of(routed_run(true))), one);
  }
}

TEST(ExpertsOfContext, RoundsChangeNoSumButItsOrder) {
  const Curve one = train_and_evaluate(routed_run(true));
  for (const double factor : {0.3, 1.2}) {
    PretrainConfig config = ExpertMesh{.dp = 2, .cp = 2, .ep = 4, .zero = 1}.of(routed_run(true));
    config.mesh.moe_buffer_factor = factor;
    SCOPED_TRACE(factor);
    expect_alike(train_and_evaluate(config), one);
  }
}

// On the same mesh with the same bits.
TEST(ExpertsOfContext, ACheckpointGoesOnOnAnyMesh) {
  const TempDir folder;
  const PretrainConfig config = ExpertMesh{.dp = 2, .cp = 2, .ep = 4, .zero = 1}.of(routed_run(true));
  const Curve whole = train(config);
  train(config, 3, "", folder.path().string());
  const Curve same = train(config, 0, folder.path().string());
  EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 3, whole.losses.end()}), kSame);
  for (const ExpertMesh& mesh :
       {ExpertMesh{}, {.tp = 2, .ep = 2, .zero = 1}, {.cp = 4, .ep = 2, .zero = 3, .exchange = kRing}}) {
    SCOPED_TRACE(mesh.name());
    const Curve rest = train(mesh.of(routed_run(true)), 0, folder.path().string());
    ASSERT_EQ(rest.losses.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(relative_error(rest.losses[i], whole.losses[i + 3]), 1e-11);
  }
}

// Ranks whose samples have run out go forward with those that still have some.
TEST(ExpertsOfContext, EvaluationNeedsNoFullRounds) {
  const PretrainConfig shared = ExpertMesh{.dp = 2, .cp = 2, .ep = 4}.of(routed_run(true));
  for (const int64_t samples : {1, 5, 8})
    EXPECT_LT(relative_error(first_evaluation(shared, samples), first_evaluation(routed_run(true), samples)),
              1e-13)
        << samples;
}

// Where tokens choose evenly.
TEST(ExpertsOfContext, APlanForetellsWhatRanksHoldAndSend) {
  PretrainConfig config = ExpertMesh{.dp = 2, .cp = 2, .ep = 4, .zero = 1}.of(routed_run(false));
  config.model.seq_length = config.model.max_position_embeddings.emplace(256);
  config.model.hidden_dropout = 0;
  const PlanReport report = plan_of(config);
  const std::vector<double> sent = sent_in_a_step(config, report, kExpertShareAxes, expect_planned_memory);
  EXPECT_NEAR(std::accumulate(sent.begin(), sent.end(), 0.0) / 4 / report.traffic[0].experts, 1, 0.1);
  for (const double context : sent_in_a_step(config, report, {Axis::Cp}, expect_planned_memory))
    EXPECT_EQ(context, report.traffic[0].context);
}

// Counts of choices, and with a capacity the choices and their gates; again in repeated forwards.
TEST(ExpertsOfContext, APlanForetellsWhatTheirRoutersSend) {
  struct Case {
    RouterBalance balance;
    std::optional<double> capacity = {};
    RecomputeGranularity recompute = RecomputeGranularity::None;
    bool f64 = false;
    int tp = 1;
  };
  for (const Case& each :
       {Case{RouterBalance::GlobalAuxLoss}, Case{RouterBalance::AuxLoss}, Case{RouterBalance::AuxLoss, 0.5},
        Case{RouterBalance::GlobalAuxLoss, 1.5, RecomputeGranularity::Full, true},
        Case{RouterBalance::SequenceAuxLoss, 0.5, RecomputeGranularity::Full, false, 2},
        Case{RouterBalance::None, {}, RecomputeGranularity::Full, true}}) {
    SCOPED_TRACE(
        fmt::format("{} capacity {} tensor {}", name_of(each.balance), each.capacity.value_or(0), each.tp));
    PretrainConfig config =
        ExpertMesh{.tp = each.tp, .cp = 2, .recompute = each.recompute}.of(routed_run(each.f64));
    config.model.moe_router_load_balancing_type = each.balance;
    config.model.moe_expert_capacity_factor = each.capacity;
    if (each.balance == RouterBalance::None) config.model.moe_aux_loss_coeff = 0;
    const PlanReport report = plan_of(config);
    for (const double context : sent_in_a_step(config, report, {Axis::Cp}, expect_planned_memory))
      EXPECT_EQ(context, report.traffic[0].context);
  }
}

}  // namespace
}  // namespace trifold::test
