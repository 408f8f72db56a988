// Bytes of ZeRO's stages: the paper's, the plan's and those of ranks that really run.

#include <gtest/gtest.h>

#include <mutex>

#include "config/commands/validate.h"
#include "support/planned_runs.h"
#include "support/plans.h"
#include "support/training.h"

namespace trifold::test {
namespace {

double number(size_t bytes) { return static_cast<double>(bytes); }

PretrainConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t length, int ranks) {
  PretrainConfig run = gpt_of({layers, width, heads, length, 50257}, ranks);
  run.batch.micro_batch_size = 1;
  run.precision.bf16 = true;
  return run;
}

// Figure 1 of the paper: 7.5 billion parameters, 64 ranks.
TEST(ZeroTable, GivesTheNumbersOfThePaper) {
  const double published[] = {120, 31.4, 16.6, 1.9};
  const ZeroTable table = zero_table_of(plan_config(gpt(23, 5120, 40, 1024, 64)));
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_EQ(table.shared, 64);
  EXPECT_EQ(table.optimizer_bytes, 12);
  for (size_t stage = 0; stage < 4; ++stage)
    EXPECT_NEAR(table.rows[stage].formula.all() / 1e9, published[stage], 0.05) << "stage " << stage;
}

// What is held of 124 million parameters on 8 and 64 ranks. Of stage 3's weights the embedding and two layers
// are gathered at a time: the rest is the formula's share.
TEST(ZeroTable, HasTheBytesOfTheFormula) {
  for (const int ranks : {8, 64}) {
    const ZeroTable table = zero_table_of(plan_config(gpt(12, 768, 12, 1024, ranks)));
    const double psi = table.rows[0].formula.parameters / 2;
    EXPECT_GT(psi, 1e8);
    for (const ZeroTableRow& row : table.rows) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, row.stage));
      EXPECT_NEAR(number(row.held.optimizer), row.formula.optimizer, 0.02 * row.formula.optimizer);
      if (row.stage < 3) {
        EXPECT_NEAR(number(row.held.parameters), row.formula.parameters, 0.02 * row.formula.parameters);
      } else {
        const double embedding = 2.0 * 768 * (50304 + 1024);
        const double layer = 2.0 * (12 * 768 * 768 + 13 * 768);
        const double gathered = row.formula.parameters + embedding + 2 * layer;
        EXPECT_NEAR(number(row.held.parameters), gathered, 0.02 * gathered);
      }
      EXPECT_GE(number(row.held.gradients), (row.stage < 2 ? 1 : 1.0 / ranks) * 4 * psi);
    }
  }
}

struct Place {
  int dp, tp, pp;
};

// 8 ranks that run hold, byte for byte, what the plan says.
TEST(ZeroTable, EqualsTheMemoryOfRunningRanks) {
  for (const Place& p : {Place{8, 1, 1}, Place{4, 2, 1}, Place{4, 1, 2}, Place{2, 2, 2}})
    for (int stage = 0; stage < 4; ++stage) {
      SCOPED_TRACE(fmt::format("dp {} tp {} pp {}, stage {}", p.dp, p.tp, p.pp, stage));
      PretrainConfig run = on_mesh(small_run(), p.dp, p.tp, p.pp);
      run.model.num_layers = 6;
      run.model.hidden_size = 128;
      run.model.ffn_hidden_size = 512;
      run.precision.bf16 = true;
      run.batch.micro_batch_size = 1;
      run.zero.zero_stage = stage;
      run.zero.zero_min_unit_params = 1;  // a unit a block
      const PlanConfig plan = plan_config(run);
      const std::vector<PlannedRank> planned = ranks_of(plan);
      std::vector<MemoryReport> held(8);
      const SyntheticTokens data(run.model.seq_length, 7, 11);
      run_on_ranks(run.mesh, [&](Communicator& world) {
        const Trainer trainer(world, plan.run, data, nullptr);
        held[static_cast<size_t>(world.rank())] = trainer.memory();
      });
      for (int rank = 0; rank < 8; ++rank) {
        const PlannedRank& expected = planned[static_cast<size_t>(
            coords_of(rank, {{Axis::Tp, p.tp}, {Axis::Dp, p.dp}, {Axis::Pp, p.pp}})[Axis::Pp])];
        const MemoryReport& mine = held[static_cast<size_t>(rank)];
        EXPECT_EQ(mine.parameters, expected.memory.parameters);
        EXPECT_EQ(mine.gradients, expected.memory.gradients);
        EXPECT_EQ(mine.optimizer, expected.memory.optimizer);
        EXPECT_EQ(mine.predicted_activations, expected.memory.predicted_activations);
        const ZeroBytes formula = zero_formula(stage, static_cast<double>(expected.parameters), p.dp, 2, 12);
        EXPECT_NEAR(number(mine.optimizer), formula.optimizer, 0.02 * formula.optimizer);
        if (stage < 3) {
          EXPECT_NEAR(number(mine.parameters), formula.parameters, 0.02 * formula.parameters);
        } else {
          EXPECT_GE(number(mine.parameters), formula.parameters);  // and the units gathered at a time
        }
      }
    }
}

// Rows that were counted for one plan serve the others, with the bytes that each has by itself: one reduction
// after each micro-batch divides messages that travel together otherwise, so its rows are other ones.
TEST(ZeroTable, CountsEachRowOnce) {
  for (const Schedule schedule : {Schedule::Gpipe, Schedule::OneFOneB, Schedule::ZbH1}) {
    PretrainConfig run = on_mesh(small_run(), 2, 1, 2);
    run.model.num_layers = 4;
    run.pipeline.schedule = schedule;
    run.batch.global_batch_size = 16;
    CountedActivations counted;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
        if (stage < 2 && policy == ReducePolicy::Each) continue;
        SCOPED_TRACE(fmt::format("{}, stage {}, {}", schedule_name(schedule), stage,
                                 policy == ReducePolicy::Each ? "each" : "once"));
        run.zero.zero_stage = stage;
        run.zero.zero_reduce = stage < 2 ? std::optional<ReducePolicy>() : policy;
        const std::vector<PlannedRank> alone = ranks_of(plan_config(run));
        const std::vector<PlannedRank> together = ranks_of(plan_config(run), &counted);
        ASSERT_EQ(alone.size(), together.size());
        for (size_t rank = 0; rank < alone.size(); ++rank)
          EXPECT_EQ(alone[rank].memory.predicted_activations, together[rank].memory.predicted_activations);
      }
    }
  }
  CountedActivations counted;
  const RankPlan row{{ActionKind::F, 0}};
  const auto bytes = [](size_t scratch) {
    ActivationMemory memory;
    memory.scratch = scratch;
    return memory;
  };
  const auto known = []() -> ActivationMemory { throw Error("it is known"); };
  EXPECT_EQ(counted.of(1, row, [&] { return bytes(7); }).total(), 7U);
  EXPECT_EQ(counted.of(1, row, known).total(), 7U);
  EXPECT_EQ(counted.of(2, row, [&] { return bytes(8); }).total(), 8U) << "another rank has other blocks";
}

}  // namespace
}  // namespace trifold::test
