// Multi-head latent attention on every kind of mesh: the same curve, the same bits where nothing is summed in another
// order, checkpoints that any mesh reads, and plans that foretell memory and traffic.
#include <gtest/gtest.h>

#include "checkpoint/inspect.h"
#include "files/file.h"
#include "support/compare.h"
#include "support/planned_memory.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig latent_run(int64_t query_rank, bool f64) {
  PretrainConfig config = small_run();
  make_latent(config.model, query_rank);
  config.model.num_layers = 3;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 2000;
  config.eval.eval_iters = 2;
  return config;
}

// DeepSeek-V3 in small: latent attention before experts chosen by sigmoids, with a shared one.
PretrainConfig latent_experts(bool f64) {
  PretrainConfig config = latent_run(20, f64);
  config.model.num_experts = 8;
  config.model.moe_router_topk = 3;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.moe_router_score_function = RouterScore::Sigmoid;
  config.model.moe_router_topk_scaling_factor = 2.5;
  config.model.moe_aux_loss_coeff = 0.001;
  return config;
}

constexpr auto kSelective = RecomputeGranularity::Selective;
constexpr auto kFull = RecomputeGranularity::Full;

TEST(Latent, CurvesAgreeOnEveryMesh) {
  for (const int64_t query_rank : {20, 0}) {
    const PretrainConfig base = latent_run(query_rank, true);
    const Curve one = train_and_evaluate(base);
    EXPECT_LT(one.losses.back(), one.losses.front());
    for (const RunMesh& mesh :
         {RunMesh{.tp = 2},
          {.tp = 4, .sequence_parallel = true},
          {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 1},
          {.dp = 4, .tp = 2, .zero = 2},
          {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"},
          {.tp = 2, .pp = 3, .sequence_parallel = true, .recompute = kSelective},
          {.dp = 2, .pp = 3, .zero = 1, .recompute = kFull},
          {.tp = 2, .sequence_parallel = true, .recompute = kFull},
          {.cp = 2},
          {.tp = 2,
          .cp = 2,
          .sequence_parallel = true,
          .recompute = kSelective,
          .exchange = ContextExchange::Ring},
          {.dp = 2, .cp = 4, .zero = 3, .exchange = ContextExchange::AllToAll}}) {
      SCOPED_TRACE(fmt::format("query rank {}, {}", query_rank, mesh.name()));
      const Curve cut = train_and_evaluate(mesh.of(base));
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
      EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
      EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
    }
  }
}

TEST(Latent, WithExpertsToo) {
  const Curve one = train_and_evaluate(latent_experts(true));
  for (const auto& [mesh, ep] :
       {std::pair(RunMesh{.dp = 4, .zero = 1}, 4),
        {RunMesh{.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}, 4},
        {RunMesh{.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = "zb-h1"}, 2},
        {RunMesh{.dp = 2, .cp = 2, .zero = 1}, 4},
        {RunMesh{.tp = 2,
        .cp = 2,
        .sequence_parallel = true,
        .recompute = kSelective,
        .exchange = ContextExchange::Ring},
         2},
        {RunMesh{.tp = 2,
        .cp = 2,
        .sequence_parallel = true,
        .zero = 3,
        .recompute = kFull,
        .exchange = ContextExchange::AllToAll},
         4}}) {
    SCOPED_TRACE(mesh.name());
    PretrainConfig config = mesh.of(latent_experts(true));
    config.mesh.expert_model_parallel_size = ep;
    const Curve cut = train_and_evaluate(config);
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
    EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  }
}

// Stages, schedules, ZeRO and recomputation sum nothing in another order.
TEST(Latent, PipelinesAndZeroChangeNoBit) {
  for (const int tp : {1, 2}) {
    const PretrainConfig base = latent_run(20, false);
    const Curve plain = train_and_evaluate(RunMesh{.dp = 2, .tp = tp, .sequence_parallel = tp > 1}.of(base));
    for (const RunMesh& mesh :
         {RunMesh{.dp = 2, .tp = tp, .pp = 3, .sequence_parallel = tp > 1, .schedule = "zb-h1"},
          {.dp = 2, .tp = tp, .sequence_parallel = tp > 1, .zero = 3},
          {.dp = 2, .tp = tp, .pp = 2, .sequence_parallel = tp > 1, .zero = 1, .recompute = kSelective},
          {.dp = 2, .tp = tp, .sequence_parallel = tp > 1, .zero = 2, .recompute = kFull}}) {
      SCOPED_TRACE(mesh.name());
      const Curve curve = train_and_evaluate(mesh.of(base));
      EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame);
      EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame);
      EXPECT_EQ(curve.valid_loss, plain.valid_loss);
    }
  }
}

TEST(Latent, In16BitsItFollowsTheCurveOf32) {
  PretrainConfig config = latent_run(20, false);
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(12);
  const Curve wide = train(config);
  config.precision.bf16 = true;
  config.mesh.sequence_parallel = true;
  EXPECT_LT(relative_error(train(on_mesh(config, 1, 2)).losses, wide.losses), 2e-2);
}

// With and without a change of mesh.
TEST(Latent, ACheckpointGoesOnOnAnyMesh) {
  const auto folder = std::filesystem::temp_directory_path() / ("trifold_latent_" + random_id());
  for (const bool f64 : {false, true}) {
    PretrainConfig config = latent_run(20, f64);
    const RunMesh saved{.tp = 4, .sequence_parallel = true};
    const Curve whole = train(saved.of(config));
    train(saved.of(config), 2, "", folder.string());
    const Curve same = train(saved.of(config), 0, folder.string());
    EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 2, whole.losses.end()}), kSame);
    for (const RunMesh& mesh : {RunMesh{},
                                {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3},
                                {.dp = 2, .tp = 2, .pp = 2, .zero = 1}}) {
      SCOPED_TRACE(mesh.name());
      const Curve curve = train(mesh.of(config), 0, folder.string());
      ASSERT_EQ(curve.losses.size(), 2U);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_LT(relative_error(curve.losses[i], whole.losses[i + 2]), f64 ? 1e-11 : 1e-5);
    }
    std::filesystem::remove_all(folder);
  }
}

// What tensor ranks hold and send; at their border are latent vectors, not rows of the residual stream.
TEST(Latent, APlanForetellsMemoryAndTraffic) {
  for (const int64_t query_rank : {20, 0})
    for (const bool sequence : {false, true})
      for (const auto recompute : {RecomputeGranularity::None, kSelective, kFull}) {
        PretrainConfig config = RunMesh{.tp = 2, .sequence_parallel = sequence, .recompute = recompute}.of(
            latent_run(query_rank, false));
        config.model.seq_length = config.model.max_position_embeddings.emplace(256);
        const PlanReport report = plan_of(config);
        for (const double sent : sent_in_a_step(config, report, {Axis::Tp}, expect_planned_memory))
          EXPECT_NEAR(sent / report.traffic[0].tensor, 1, 0.02)
              << "query rank " << query_rank << (sequence ? ", sequence parallel" : "") << ", recompute "
              << static_cast<int>(recompute);
      }
}

// Keys and values of all heads travel, as wide as attention takes them.
TEST(Latent, APlanForetellsWhatContextRanksHoldAndSend) {
  for (const auto exchange : {ContextExchange::AllGather, ContextExchange::Ring, ContextExchange::AllToAll})
    for (const auto recompute : {RecomputeGranularity::None, kFull}) {
      const PretrainConfig config =
          RunMesh{.cp = 2, .zero = 1, .recompute = recompute, .exchange = exchange}.of(latent_run(20, false));
      const PlanReport report = plan_of(config);
      for (const double sent : sent_in_a_step(config, report, {Axis::Cp}, expect_planned_memory))
        EXPECT_EQ(sent, report.traffic[0].context);
    }
}

}  // namespace
}  // namespace trifold::test
