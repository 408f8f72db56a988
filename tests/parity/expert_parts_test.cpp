// Experts whose width is cut over ranks (--expert-tensor-parallel-size): a row meets all parts of its expert, whose results
// are added up. Any ranks of a pipeline stage may hold them, whatever they are to the dense layers.
#include <gtest/gtest.h>

#include <mutex>

#include "config/rules/validate.h"
#include "plan/report.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// 4 experts, of which a token chooses 2, gated or not.
PretrainConfig parts_run(bool f64, bool llama) {
  PretrainConfig config = small_run();
  config.model.seq_length = config.model.max_position_embeddings.emplace(16);
  if (llama) make_llama(config.model, 2);
  config.model.num_layers = 3;
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 64;
  config.model.disable_bias_linear = true;
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_aux_loss_coeff = 0.01;
  config.model.moe_z_loss_coeff = 0.001;
  config.model.hidden_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 8;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.zero.zero_min_unit_params = 4000;
  config.eval.eval_iters = 2;
  return config;
}

struct PartsMesh {
  int dp, tp, pp, cp, ep, etp, zero = 0;
  const char* schedule = "1f1b";
  int chunks = 1;
  std::optional<double> factor = {};

  PretrainConfig of(const PretrainConfig& base) const {
    PretrainConfig config = scheduled(on_mesh(base, dp, tp, pp, cp), schedule, chunks);
    config.mesh.sequence_parallel = tp > 1;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.expert_tensor_parallel_size = etp;
    config.mesh.moe_buffer_factor = factor;
    config.zero.zero_stage = zero;
    return config;
  }
  std::string name() const {
    return fmt::format("dp {} tp {} pp {} cp {} ep {} etp {} zero {} {} factor {}", dp, tp, pp, cp, ep, etp,
                       zero, schedule, factor.value_or(0));
  }
};

void expect_parts_alike(const Curve& cut, const Curve& one) {
  EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
  EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
  EXPECT_LT(relative_error(cut.balances, one.balances), 1e-11);
  EXPECT_LT(relative_error(cut.router_sizes, one.router_sizes), 1e-11);
  EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
}

TEST(PartsOfExperts, CurvesAgreeOnEveryMesh) {
  for (const bool llama : {false, true}) {
    const Curve one = train_and_evaluate(parts_run(true, llama));
    for (const PartsMesh& mesh : {PartsMesh{2, 1, 1, 1, 1, 2},
                                  {8, 1, 1, 1, 1, 8, 1},
                                  {8, 1, 1, 1, 4, 2, 3},
                                  {8, 1, 1, 1, 2, 2, 2},
                                  {1, 8, 1, 1, 4, 2},
                                  {2, 4, 1, 1, 1, 2, 1},
                                  {4, 2, 1, 1, 2, 4, 3},
                                  {1, 2, 1, 4, 2, 4},
                                  {2, 1, 1, 4, 4, 2, 2},
                                  {2, 2, 1, 2, 1, 4, 1}}) {
      SCOPED_TRACE(mesh.name());
      expect_parts_alike(train_and_evaluate(mesh.of(parts_run(true, llama))), one);
    }
  }
}

TEST(PartsOfExperts, CurvesAgreeInEverySchedule) {
  const Curve one = train_and_evaluate(parts_run(true, true));
  for (const PartsMesh& mesh : {PartsMesh{4, 1, 2, 1, 2, 2, 1, "gpipe"},
                                {2, 2, 2, 1, 1, 4, 2, "1f1b"},
                                {4, 1, 2, 1, 1, 4, 3, "zb-h1"},
                                {2, 1, 2, 2, 2, 2, 1, "interleaved", 2},
                                {1, 4, 2, 1, 4, 1, 0, "zb-v", 2},
                                {1, 4, 2, 1, 1, 2, 0, "dualpipe-v", 2}}) {
    SCOPED_TRACE(mesh.name());
    expect_parts_alike(train_and_evaluate(mesh.of(parts_run(true, true))), one);
  }
}

TEST(PartsOfExperts, RoundsChangeNoSumButItsOrder) {
  const Curve one = train_and_evaluate(parts_run(true, true));
  for (const double factor : {0.3, 1.0, 1.4})
    for (const PartsMesh& mesh : {PartsMesh{8, 1, 1, 1, 4, 2, 1, "1f1b", 1, factor},
                                  PartsMesh{4, 1, 2, 1, 1, 4, 0, "zb-h1", 1, factor}}) {
      SCOPED_TRACE(mesh.name());
      expect_parts_alike(train_and_evaluate(mesh.of(parts_run(true, true))), one);
    }
}

TEST(PartsOfExperts, StagesOfZeroChangeNoBit) {
  const Curve plain = train_and_evaluate(PartsMesh{8, 1, 1, 1, 2, 2}.of(parts_run(false, true)));
  for (const int stage : {1, 2, 3}) {
    const Curve sharded = train_and_evaluate(PartsMesh{8, 1, 1, 1, 2, 2, stage}.of(parts_run(false, true)));
    EXPECT_EQ(first_difference<double>(sharded.losses, plain.losses), kSame) << stage;
    EXPECT_EQ(first_difference<double>(sharded.grad_norms, plain.grad_norms), kSame) << stage;
    EXPECT_EQ(sharded.valid_loss, plain.valid_loss) << stage;
  }
}

TEST(PartsOfExperts, In16BitsTheyAgreeWithinTheirRounding) {
  PretrainConfig base = parts_run(false, true);
  base.precision.bf16 = true;
  const Curve all = train(on_mesh(base, 4));
  const Curve cut = train(PartsMesh{4, 1, 1, 1, 2, 2, 1}.of(base));
  EXPECT_LT(relative_error(cut.losses, all.losses), 5e-3);
}

// Of another number of parts, and of experts that are whole; with the optimizer's state.
TEST(PartsOfExperts, ACheckpointGoesOnOnAnyMesh) {
  const TempDir folder;
  const PretrainConfig config = PartsMesh{4, 2, 1, 1, 2, 4, 1}.of(parts_run(true, true));
  const Curve whole = train(config);
  train(config, 3, "", folder.path().string());
  const Curve same = train(config, 0, folder.path().string());
  EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 3, whole.losses.end()}), kSame);
  for (const PartsMesh& mesh : {PartsMesh{1, 1, 1, 1, 1, 1},
                                {8, 1, 1, 1, 4, 1, 3},
                                {8, 1, 1, 1, 1, 8, 2},
                                {2, 1, 2, 2, 2, 2, 1, "zb-h1"}}) {
    SCOPED_TRACE(mesh.name());
    const Curve rest = train(mesh.of(parts_run(true, true)), 0, folder.path().string());
    ASSERT_EQ(rest.losses.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(relative_error(rest.losses[i], whole.losses[i + 3]), 1e-11);
  }
}

TEST(PartsOfExperts, APlanForetellsWhatRanksHoldAndSend) {
  constexpr auto kSent = TokenDispatcher::AllToAll, kGathered = TokenDispatcher::AllGather;
  for (const auto& [factor, dispatch] :
       {std::pair(std::optional<double>(), kSent), {1.5, kSent}, {{}, kGathered}, {1.5, kGathered}}) {
    PretrainConfig config = PartsMesh{4, 2, 1, 1, 2, 2, 1}.of(parts_run(false, true));
    config.model.seq_length = config.model.max_position_embeddings.emplace(256);
    config.model.hidden_dropout = 0;
    config.mesh.moe_buffer_factor = factor;
    config.mesh.moe_token_dispatcher_type = dispatch;
    PlanConfig plan;
    plan.run = config;
    const PlanReport report = make_plan_report(resolve(plan));
    EXPECT_EQ(report.experts, 2);
    EXPECT_EQ(report.expert_parts, 2);
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    std::mutex mutex;
    double sent = 0;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      const Communicator& ranks = trainer.replica().mesh().comm(kExpertShareAxes);
      const int64_t before = ranks.bytes_sent();
      trainer.step();
      const MemoryReport memory = trainer.memory();
      EXPECT_EQ(memory.predicted_activations, report.memory[0].predicted_activations);
      EXPECT_EQ(memory.parameters, report.memory[0].parameters);
      EXPECT_EQ(memory.gradients, report.memory[0].gradients);
      EXPECT_EQ(memory.optimizer, report.memory[0].optimizer);
      const std::lock_guard lock(mutex);
      sent += static_cast<double>(ranks.bytes_sent() - before);
    });
    if (!factor) {
      EXPECT_NEAR(sent / 8 / report.traffic[0].experts, 1, 0.1);
    }
  }
}

}  // namespace
}  // namespace trifold::test
