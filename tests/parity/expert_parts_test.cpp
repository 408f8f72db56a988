// Experts whose width is cut over ranks (--expert-tensor-parallel-size): a row meets all parts of its expert, whose
// results are added up. Any ranks of a pipeline stage may hold them, whatever they are to the dense layers.
#include <gtest/gtest.h>

#include <numeric>

#include "support/expert_runs.h"
#include "support/files.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

// 4 experts, of which a token chooses 2, gated or not.
PretrainConfig parts_run(bool f64, bool llama) {
  PretrainConfig config = run_with_experts(4, f64);
  if (llama) make_llama(config.model, 2);
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 64;
  return config;
}

TEST(PartsOfExperts, CurvesAgreeOnEveryMesh) {
  for (const bool llama : {false, true}) {
    const Curve one = train_and_evaluate(parts_run(true, llama));
    for (const ExpertMesh& mesh : {ExpertMesh{2, 1, 1, 1, 1, 2},
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
      expect_alike(train_and_evaluate(mesh.of(parts_run(true, llama))), one);
    }
  }
}

TEST(PartsOfExperts, CurvesAgreeInEverySchedule) {
  const Curve one = train_and_evaluate(parts_run(true, true));
  for (const ExpertMesh& mesh : {ExpertMesh{4, 1, 2, 1, 2, 2, 1, "gpipe"},
                                 {2, 2, 2, 1, 1, 4, 2, "1f1b"},
                                 {4, 1, 2, 1, 1, 4, 3, "zb-h1"},
                                 {2, 1, 2, 2, 2, 2, 1, "interleaved", 2},
                                 {1, 4, 2, 1, 4, 1, 0, "zb-v", 2},
                                 {1, 4, 2, 1, 1, 2, 0, "dualpipe-v", 2}}) {
    SCOPED_TRACE(mesh.name());
    expect_alike(train_and_evaluate(mesh.of(parts_run(true, true))), one);
  }
}

TEST(PartsOfExperts, RoundsChangeNoSumButItsOrder) {
  const Curve one = train_and_evaluate(parts_run(true, true));
  for (const double factor : {0.3, 1.0, 1.4})
    for (const ExpertMesh& mesh : {ExpertMesh{8, 1, 1, 1, 4, 2, 1, "1f1b", 1, factor},
                                   ExpertMesh{4, 1, 2, 1, 1, 4, 0, "zb-h1", 1, factor}}) {
      SCOPED_TRACE(mesh.name());
      expect_alike(train_and_evaluate(mesh.of(parts_run(true, true))), one);
    }
}

TEST(PartsOfExperts, StagesOfZeroChangeNoBit) {
  const Curve plain = train_and_evaluate(ExpertMesh{8, 1, 1, 1, 2, 2}.of(parts_run(false, true)));
  for (const int stage : {1, 2, 3}) {
    const Curve sharded = train_and_evaluate(ExpertMesh{8, 1, 1, 1, 2, 2, stage}.of(parts_run(false, true)));
    EXPECT_EQ(first_difference<double>(sharded.losses, plain.losses), kSame) << stage;
    EXPECT_EQ(first_difference<double>(sharded.grad_norms, plain.grad_norms), kSame) << stage;
    EXPECT_EQ(sharded.valid_loss, plain.valid_loss) << stage;
  }
}

TEST(PartsOfExperts, In16BitsTheyAgreeWithinTheirRounding) {
  PretrainConfig base = parts_run(false, true);
  base.precision.bf16 = true;
  const Curve all = train(on_mesh(base, 4));
  const Curve cut = train(ExpertMesh{4, 1, 1, 1, 2, 2, 1}.of(base));
  EXPECT_LT(relative_error(cut.losses, all.losses), 5e-3);
}

// Of another number of parts, and of experts that are whole; with the optimizer's state.
TEST(PartsOfExperts, ACheckpointGoesOnOnAnyMesh) {
  const TempDir folder;
  const PretrainConfig config = ExpertMesh{4, 2, 1, 1, 2, 4, 1}.of(parts_run(true, true));
  const Curve whole = train(config);
  train(config, 3, "", folder.path().string());
  const Curve same = train(config, 0, folder.path().string());
  EXPECT_EQ(first_difference<double>(same.losses, {whole.losses.begin() + 3, whole.losses.end()}), kSame);
  for (const ExpertMesh& mesh : {ExpertMesh{1, 1, 1, 1, 1, 1},
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
    PretrainConfig config = ExpertMesh{4, 2, 1, 1, 2, 2, 1}.of(parts_run(false, true));
    config.model.seq_length = config.model.max_position_embeddings.emplace(256);
    config.model.hidden_dropout = 0;
    config.mesh.moe_buffer_factor = factor;
    config.mesh.moe_token_dispatcher_type = dispatch;
    const PlanReport report = plan_of(config);
    EXPECT_EQ(report.experts, 2);
    EXPECT_EQ(report.expert_parts, 2);
    const std::vector<double> sent = sent_in_a_step(config, report, kExpertShareAxes, expect_planned_memory);
    if (!factor) {
      EXPECT_NEAR(std::accumulate(sent.begin(), sent.end(), 0.0) / 8 / report.traffic[0].experts, 1, 0.1);
    }
  }
}

}  // namespace
}  // namespace trifold::test
