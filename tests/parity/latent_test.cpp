// Multi-head latent attention on every kind of mesh: the same curve, the same bits where nothing is summed in another
// order, checkpoints that any mesh reads, and plans that foretell memory and traffic.
#include <gtest/gtest.h>

#include "checkpoint/inspect.h"
#include "files/file.h"
#include "support/compare.h"
#include "support/planned_memory.h"
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

struct LatentMesh {
  int dp, tp, pp, cp = 1;
  bool sequence_parallel = false;
  int zero = 0;
  const char* schedule = "1f1b";
  RecomputeGranularity recompute = RecomputeGranularity::None;
  ContextExchange exchange = ContextExchange::AllGather;
};

PretrainConfig latent_on(const PretrainConfig& base, const LatentMesh& mesh) {
  PretrainConfig config = on_mesh(base, mesh.dp, mesh.tp, mesh.pp, mesh.cp);
  if (mesh.pp > 1) config = scheduled(config, mesh.schedule, std::string(mesh.schedule) == "zb-v" ? 2 : 1);
  config.mesh.sequence_parallel = mesh.sequence_parallel;
  config.mesh.recompute_granularity = mesh.recompute;
  if (mesh.cp > 1) config.mesh.cp_comm_type = mesh.exchange;
  config.zero.zero_stage = mesh.zero;
  return config;
}

std::string name_of(const LatentMesh& m) {
  return fmt::format("dp {} tp {} pp {} cp {} sp {} zero {} {} recompute {} {}", m.dp, m.tp, m.pp, m.cp,
                     m.sequence_parallel, m.zero, m.schedule, static_cast<int>(m.recompute),
                     name_of(m.exchange));
}

constexpr auto kSelective = RecomputeGranularity::Selective;
constexpr auto kFull = RecomputeGranularity::Full;

TEST(Latent, CurvesAgreeOnEveryMesh) {
  for (const int64_t query_rank : {20, 0}) {
    const PretrainConfig base = latent_run(query_rank, true);
    const Curve one = train_and_evaluate(base);
    EXPECT_LT(one.losses.back(), one.losses.front());
    for (const LatentMesh& mesh :
         {LatentMesh{1, 2, 1},
          {1, 4, 1, 1, true},
          {2, 2, 1, 1, true, 1},
          {4, 2, 1, 1, false, 2},
          {2, 2, 2, 1, true, 3, "zb-h1"},
          {1, 2, 3, 1, true, 0, "1f1b", kSelective},
          {2, 1, 3, 1, false, 1, "1f1b", kFull},
          {1, 2, 1, 1, true, 0, "1f1b", kFull},
          {1, 1, 1, 2},
          {1, 2, 1, 2, true, 0, "1f1b", kSelective, ContextExchange::Ring},
          {2, 1, 1, 4, false, 3, "1f1b", RecomputeGranularity::None, ContextExchange::AllToAll}}) {
      SCOPED_TRACE(fmt::format("query rank {}, {}", query_rank, name_of(mesh)));
      const Curve cut = train_and_evaluate(latent_on(base, mesh));
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
      EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
      EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
    }
  }
}

TEST(Latent, WithExpertsToo) {
  const Curve one = train_and_evaluate(latent_experts(true));
  for (const auto& [mesh, ep] :
       {std::pair(LatentMesh{4, 1, 1, 1, false, 1}, 4),
        {LatentMesh{2, 2, 1, 1, true, 3}, 4},
        {LatentMesh{2, 2, 2, 1, true, 0, "zb-h1"}, 2},
        {LatentMesh{2, 1, 1, 2, false, 1}, 4},
        {LatentMesh{1, 2, 1, 2, true, 0, "1f1b", kSelective, ContextExchange::Ring}, 2},
        {LatentMesh{1, 2, 1, 2, true, 3, "1f1b", kFull, ContextExchange::AllToAll}, 4}}) {
    SCOPED_TRACE(name_of(mesh));
    PretrainConfig config = latent_on(latent_experts(true), mesh);
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
    const Curve plain = train_and_evaluate(latent_on(base, {2, tp, 1, 1, tp > 1}));
    for (const LatentMesh& mesh : {LatentMesh{2, tp, 3, 1, tp > 1, 0, "zb-h1"},
                                   {2, tp, 1, 1, tp > 1, 3},
                                   {2, tp, 2, 1, tp > 1, 1, "1f1b", kSelective},
                                   {2, tp, 1, 1, tp > 1, 2, "1f1b", kFull}}) {
      SCOPED_TRACE(name_of(mesh));
      const Curve curve = train_and_evaluate(latent_on(base, mesh));
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
    const LatentMesh saved{1, 4, 1, 1, true};
    const Curve whole = train(latent_on(config, saved));
    train(latent_on(config, saved), 2, "", folder.string());
    const Curve same = train(latent_on(config, saved), 0, folder.string());
    EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 2, whole.losses.end()}), kSame);
    for (const LatentMesh& mesh : {LatentMesh{1, 1, 1}, {2, 2, 1, 1, true, 3}, {2, 2, 2, 1, false, 1}}) {
      SCOPED_TRACE(name_of(mesh));
      const Curve curve = train(latent_on(config, mesh), 0, folder.string());
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
        PretrainConfig config =
            latent_on(latent_run(query_rank, false), {1, 2, 1, 1, sequence, 0, "1f1b", recompute});
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
          latent_on(latent_run(20, false), {1, 1, 1, 2, false, 1, "1f1b", recompute, exchange});
      const PlanReport report = plan_of(config);
      for (const double sent : sent_in_a_step(config, report, {Axis::Cp}, expect_planned_memory))
        EXPECT_EQ(sent, report.traffic[0].context);
    }
}

}  // namespace
}  // namespace trifold::test
