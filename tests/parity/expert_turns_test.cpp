// Forward and backward of a pair that take turns while rows of experts travel: the bits of a run without.
#include <gtest/gtest.h>

#include "support/expert_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

// 4 layers on 2 x 2 stages, of which each has a layer with experts.
PretrainConfig run_in_turns(const ExpertMesh& mesh, bool shared = false) {
  PretrainConfig base = run_with_experts(8, false);
  base.model.num_layers = 4;
  base.batch.global_batch_size = 10;
  if (shared) base.model.moe_shared_expert_intermediate_size = 16;
  PretrainConfig config = mesh.of(base);
  config.mesh.overlap_moe_expert_parallel_comm = true;
  return config;
}

ExpertMesh folded(int dp, int tp, int ep) {
  return {.dp = dp, .tp = tp, .pp = 2, .ep = ep, .schedule = "dualpipe-v", .chunks = 2};
}

void expect_same_bits(PretrainConfig config) {
  const Curve turns = train(config, 2);
  config.mesh.overlap_moe_expert_parallel_comm = false;
  const Curve apart = train(config, 2);
  ASSERT_EQ(turns.losses.size(), 2U);
  EXPECT_EQ(turns.losses, apart.losses);
  EXPECT_EQ(turns.grad_norms, apart.grad_norms);
  EXPECT_EQ(turns.balances, apart.balances);
  EXPECT_EQ(turns.router_sizes, apart.router_sizes);
}

TEST(ExpertTurns, ChangeNoBitOnFourRanks) {
  for (const int zero : {0, 1, 2}) {
    ExpertMesh mesh = folded(2, 1, 2);
    mesh.zero = zero;
    SCOPED_TRACE(mesh.name());
    expect_same_bits(run_in_turns(mesh, zero == 1));
  }
}

// With tensor ranks, whose own collectives go on beside; parts of experts; and rows that come in rounds, as many as the
// data wants, in which the halves take as many turns.
TEST(ExpertTurns, ChangeNoBitOnEightRanks) {
  ExpertMesh parts = folded(2, 2, 2);
  parts.etp = 2, parts.zero = 1;
  ExpertMesh rounds = folded(2, 2, 2);
  rounds.factor = 0.6;
  for (const ExpertMesh& mesh : {folded(2, 2, 4), parts, rounds}) {
    SCOPED_TRACE(mesh.name());
    expect_same_bits(run_in_turns(mesh, true));
  }
}

TEST(ExpertTurns, ChangeNoBitWithWhatElseABlockMayDo) {
  for (const RecomputeGranularity recompute : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    ExpertMesh mesh = folded(2, 1, 2);
    mesh.recompute = recompute;
    PretrainConfig config = run_in_turns(mesh, recompute == RecomputeGranularity::Full);
    if (recompute == RecomputeGranularity::Selective)
      config.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather;
    expect_same_bits(config);
  }
}

// Both halves' temporaries are in memory at once, and a plan says so to the byte.
TEST(ExpertTurns, HaveThePlannedMemory) {
  for (const auto recompute : {RecomputeGranularity::None, RecomputeGranularity::Full}) {
    ExpertMesh mesh = folded(2, 1, 2);
    mesh.recompute = recompute;
    mesh.zero = recompute == RecomputeGranularity::None ? 1 : 2;
    PretrainConfig config = run_in_turns(mesh, true);
    const PlanReport turns = plan_of(config);
    sent_in_a_step(config, turns, {Axis::Pp}, expect_planned_memory);
    config.mesh.overlap_moe_expert_parallel_comm = false;
    const PlanReport apart = plan_of(config);
    EXPECT_GT(turns.turns, 0);
    EXPECT_EQ(apart.turns, 0);
    for (size_t rank = 0; rank < 2; ++rank)
      EXPECT_GT(turns.memory[rank].predicted_activations, apart.memory[rank].predicted_activations);
  }
}

}  // namespace
}  // namespace trifold::test
