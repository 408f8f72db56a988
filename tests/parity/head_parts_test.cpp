// An output layer in parts over the vocabulary: checkpoints load with any number of parts on any mesh, a resumed run is
// exact, memory is what a plan says, and stages of unequal output layers wait less. matrix_test.cpp has its curves.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "schedule/passes.h"
#include "support/compare.h"
#include "support/planned_memory.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig head_run(int parts, bool tied = false) {
  PretrainConfig config = small_run();
  set_four_steps(config);
  config.model.num_layers = 4;
  config.model.untie_embeddings_and_output_weights = !tied;
  config.mesh.pipeline_vocab_parts = parts;
  return config;
}

constexpr RunMesh kHeadMeshes[] = {
    {},
    {.head_parts = 4},
    {.pp = 4, .schedule = "zb-h2", .head_parts = 8},
    {.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-v", .chunks = 2, .head_parts = 16},
    {.tp = 2, .pp = 2, .sequence_parallel = true, .head_parts = 2},
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "zb-h1", .head_parts = 8}};

class HeadParts : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "head_parts_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

// With weights of its own, and with those of the token embedding.
TEST_F(HeadParts, LoadWithAnyNumberOnAnyMesh) {
  int number = 0;
  for (const bool tied : {false, true}) {
    const PretrainConfig run = head_run(1, tied);
    const Curve whole = train(run);
    for (const RunMesh& from : kHeadMeshes) {
      const std::string save = folder_ + "/" + std::to_string(number++);
      const Curve before = train(from.of(run), 2, "", save);
      for (const RunMesh& to : kHeadMeshes) {
        SCOPED_TRACE(fmt::format("{} parts on pp {} to {} on pp {}{}", from.head_parts, from.pp,
                                 to.head_parts, to.pp, tied ? ", tied" : ""));
        const Curve after = train(to.of(run), 0, save);
        ASSERT_EQ(before.losses.size() + after.losses.size(), whole.losses.size());
        for (size_t i = 0; i < after.losses.size(); ++i)
          EXPECT_LT(relative_error(after.losses[i], whole.losses[i + 2]), 1e-11);
      }
    }
  }
}

TEST_F(HeadParts, ResumeExactlyOnAnotherCut) {
  for (const bool f64 : {true, false}) {
    PretrainConfig base = head_run(8);
    base.precision.f64 = f64;
    const Curve whole = train(base);
    std::filesystem::remove_all(folder_);
    train(RunMesh{.pp = 2, .schedule = "zb-h1", .head_parts = 8}.of(base), 2, "", folder_);
    const Curve after = train(RunMesh{.pp = 4, .head_parts = 8}.of(base), 0, folder_);
    ASSERT_EQ(after.losses.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(after.losses[i], whole.losses[i + 2]);
      EXPECT_EQ(after.grad_norms[i], whole.grad_norms[i + 2]);
    }
  }
}

TEST_F(HeadParts, TrainInSixteenBits) {
  PretrainConfig one = head_run(1);
  one.precision = {};
  one.precision.bf16 = true;
  const Curve whole = train(one);
  const Curve cut = train(RunMesh{.pp = 4, .schedule = "zb-h1", .head_parts = 8}.of(one));
  const Curve flat = train(RunMesh{.head_parts = 8}.of(one));
  EXPECT_EQ(cut.losses, flat.losses);
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_LT(relative_error(cut.losses[i], whole.losses[i]), 0.01) << "step " << i;
}

TEST_F(HeadParts, HoldWhatAPlanSays) {
  for (const bool tied : {false, true})
    for (const RunMesh& mesh : kHeadMeshes) {
      const PretrainConfig config = mesh.of(head_run(1, tied));
      EXPECT_EQ(plan_of(config).parameters, plan_of(head_run(1, tied)).parameters);
      SCOPED_TRACE(fmt::format("{} parts on pp {}{}", mesh.head_parts, mesh.pp, tied ? ", tied" : ""));
      compare_with_plan(config, expect_planned_memory);
    }
}

// Parts on the first stage's rank and on others, some with stages of parts alone, each stage of ZeRO, in one bit pattern:
// also with one micro-batch, whose two gradients of a weight share their memory.
TEST_F(HeadParts, ShareTheTokenEmbeddingOnEveryCut) {
  for (const bool f64 : {true, false}) {
    PretrainConfig run = head_run(8, true);
    run.precision.f64 = f64;
    const Curve flat = train(run);
    const RunMesh meshes[] = {{.pp = 2, .head_parts = 8},
                              {.pp = 4, .schedule = "zb-h1", .head_parts = 8},
                              {.pp = 4, .schedule = "interleaved", .chunks = 2, .head_parts = 8},
                              {.pp = 2, .schedule = "zb-v", .chunks = 2, .head_parts = 8},
                              {.pp = 4, .schedule = "auto", .chunks = 2, .head_parts = 8},
                              {.pp = 4, .schedule = "gpipe", .head_parts = 8},
                              {.pp = 8, .head_parts = 8}};
    for (const RunMesh& mesh : meshes) {
      SCOPED_TRACE(fmt::format("pp {} {}", mesh.pp, mesh.schedule));
      const Curve cut = train(mesh.of(run));
      EXPECT_EQ(cut.losses, flat.losses);
      EXPECT_EQ(cut.grad_norms, flat.grad_norms);
    }
    PretrainConfig single = run;
    single.batch.global_batch_size = 1;
    EXPECT_EQ(train(RunMesh{.pp = 4, .schedule = "zb-h1", .head_parts = 8}.of(single)).grad_norms,
              train(single).grad_norms);
    const Curve two = train(RunMesh{.dp = 2, .pp = 2, .schedule = "zb-h1", .head_parts = 8}.of(run));
    for (int zero = 1; zero <= 3; ++zero) {
      PretrainConfig sharded =
          RunMesh{.dp = 2, .pp = 2, .zero = zero, .schedule = "zb-h1", .head_parts = 8}.of(run);
      if (zero == 2) sharded.zero.zero_reduce = ReducePolicy::Each;
      const Curve curve = train(sharded);
      if (zero != 2) {
        EXPECT_EQ(curve.losses, two.losses) << zero;
      }
      for (size_t i = 0; i < two.losses.size(); ++i)
        EXPECT_LT(relative_error(curve.losses[i], two.losses[i]), f64 ? 1e-11 : 1e-4) << zero;
    }
  }
}

// A plan as it is written runs with the same bits, lookups included.
TEST_F(HeadParts, RunAPlanFromAFile) {
  const PretrainConfig run = RunMesh{.pp = 4, .schedule = "zb-h1", .head_parts = 8}.of(head_run(8, true));
  const PlanReport report = plan_of(run);
  ASSERT_GT(report.stages.size(), 4U);
  std::filesystem::create_directories(folder_);
  const std::string file = folder_ + "/plan.csv";
  std::ofstream(file) << to_string(report.plan);
  const PretrainConfig same = scheduled(run, file);
  EXPECT_EQ(to_string(plan_of(same).plan), to_string(report.plan));
  EXPECT_EQ(train(same).grad_norms, train(run).grad_norms);
  // Computation alone gets its lookups; a plan with messages for the stages of layers alone keeps its REDUCE_TIED.
  std::ofstream(file) << to_string(report.computation);
  EXPECT_EQ(to_string(plan_of(same).plan), to_string(report.plan));
  std::ofstream(file) << to_string(add_communication(report.computation));
  EXPECT_EQ(plan_of(same).stages.size(), 4U);
  EXPECT_EQ(train(same).grad_norms, train(run).grad_norms);
}

// GPT-2 124M over 4 stages, 8 micro-batches, with a head of its own and with that of the token embedding.
TEST_F(HeadParts, BalanceAPipeline) {
  PretrainConfig config = head_run(1);
  config.precision = {};
  config.model.num_layers = 12;
  config.model.hidden_size = 768;
  config.model.num_attention_heads = 12;
  config.model.ffn_hidden_size = 4 * 768;
  config.model.seq_length = config.model.max_position_embeddings.emplace(1024);
  config.model.vocab_size = 50257;
  config.model.make_vocab_size_divisible_by = 128;
  config.batch.micro_batch_size = 4;
  config.batch.global_batch_size = 32;
  config = scheduled(on_mesh(config, 1, 1, 4), "auto");
  const double whole = plan_of(config).simulation.bubble;
  config.mesh.pipeline_vocab_parts = 12;
  const double cut = plan_of(config).simulation.bubble;
  EXPECT_GT(whole, 0.3);
  EXPECT_LT(cut, 0.2);
  config.model.untie_embeddings_and_output_weights = false;
  const PlanReport tied = plan_of(config);
  EXPECT_LT(tied.simulation.bubble, 0.2);
  // No rank has a second copy of a token's row: the first stage has as many weights as its layers and the positions.
  size_t most = 0, all = 0;
  for (const MemoryReport& rank : tied.memory) {
    most = std::max(most, rank.parameters);
    all += rank.parameters;
  }
  EXPECT_LT(static_cast<double>(most), 1.15 * static_cast<double>(all) / 4);
}

}  // namespace
}  // namespace trifold::test
