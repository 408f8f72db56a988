// Muon, whose update needs whole matrices: the curve of one rank on every mesh, with the same bits for all stages of
// ZeRO, cuts into pipeline stages and schedules; and a resumed run. PyTorch's curve is in torch_test.cpp.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "parity/zero_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

PretrainConfig with_muon(PretrainConfig config) {
  config.optimizer.optimizer = OptimizerKind::Muon;
  config.lr.lr = 0.02;
  config.lr.min_lr = 0.002;
  return config;
}

std::string text_of(const ZeroCase& c) {
  return fmt::format("{} dp {} tp {} pp {}", c.schedule, c.dp, c.tp, c.pp);
}

// A Llama whose key heads are fewer than four tensor ranks.
PretrainConfig llama_run(PretrainConfig config) {
  make_llama(config.model, 2);
  return config;
}

TEST(MuonRuns, HaveTheBitsOfStageZero) {
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"1f1b", 2, 2, 1, 1, true},
                               ZeroCase{"zb-h1", 2, 1, 2, 1, false}}) {
    SCOPED_TRACE(text_of(mesh));
    const Curve plain = train(with_muon(zero_run(mesh, 0)));
    ASSERT_EQ(plain.losses.size(), 20U);
    EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(stage);
      expect_same_bits(plain, train(with_muon(zero_run(mesh, stage))));
    }
  }
}

TEST(MuonRuns, HaveTheBitsOfOneStageOnPipelines) {
  const Curve plain = train(with_muon(zero_run({"1f1b", 2, 1, 1, 1, false}, 1)));
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 2, 1, 2, 1, false}, ZeroCase{"zb-h1", 2, 1, 4, 1, false},
                               ZeroCase{"interleaved", 2, 1, 2, 2, false}}) {
    SCOPED_TRACE(text_of(mesh));
    expect_same_bits(plain, train(with_muon(zero_run(mesh, 1))));
  }
}

TEST(MuonRuns, HaveTheCurveOfOneRank) {
  const auto run = [](const ZeroCase& mesh, int stage) {
    PretrainConfig config = llama_run(with_muon(zero_run(mesh, stage, true)));
    config.batch.global_batch_size = 8;
    config.mesh.sequence_parallel = mesh.tp > 1;
    return config;
  };
  const Curve one = train(run({"1f1b", 1, 1, 1, 1, false}, 0));
  for (const int stage : {0, 1, 3})
    for (const ZeroCase& mesh : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"1f1b", 1, 4, 1, 1, false},
                                 ZeroCase{"1f1b", 2, 2, 2, 1, false}}) {
      SCOPED_TRACE(text_of(mesh) + fmt::format(" stage {}", stage));
      const Curve other = train(run(mesh, stage));
      EXPECT_LT(relative_error(other.losses, one.losses), 1e-10);
      EXPECT_LT(relative_error(other.grad_norms, one.grad_norms), 1e-9);
    }
}

TEST(MuonRuns, ExpertsOnTheirRanksHaveTheCurveOfOne) {
  const auto run = [](int dp, int tp, int ep, int etp, int stage) {
    PretrainConfig config = with_muon(zero_run({"1f1b", dp, tp, 1, 1, tp > 1}, stage, true));
    make_llama(config.model, 4);
    config.model.num_layers = 2;
    config.model.num_experts = 4;
    config.model.moe_ffn_hidden_size = 24;
    config.model.hidden_dropout = 0;
    config.batch.global_batch_size = 8;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.expert_tensor_parallel_size = etp;
    return config;
  };
  const Curve one = train(run(1, 1, 1, 1, 0));
  for (const int stage : {0, 1, 3})
    for (const auto& [dp, tp, ep, etp] : {std::tuple{4, 1, 2, 1}, {2, 2, 2, 1}, {2, 2, 2, 2}}) {
      SCOPED_TRACE(fmt::format("dp {} tp {} ep {} etp {} stage {}", dp, tp, ep, etp, stage));
      EXPECT_LT(relative_error(train(run(dp, tp, ep, etp, stage)).losses, one.losses), 1e-10);
    }
}

TEST(MuonRuns, HaveThePlannedMemory) {
  for (const int stage : {0, 1, 2, 3})
    for (const ZeroCase& mesh : {ZeroCase{"1f1b", 1, 1, 1, 1, false}, ZeroCase{"1f1b", 4, 1, 1, 1, false},
                                 ZeroCase{"1f1b", 2, 2, 2, 1, true}})
      for (const bool bf16 : {false, true}) {
        SCOPED_TRACE(text_of(mesh) + fmt::format(" stage {} bf16 {}", stage, bf16));
        PretrainConfig config = with_muon(zero_run(mesh, stage));
        config.precision.bf16 = bf16;
        compare_with_plan(config, expect_planned_memory);
      }
}

// What a rank sends for matrices, beyond what adam sends, over the communicator of its stage.
TEST(MuonRuns, SendThePlannedBytes) {
  for (const int stage : {0, 1, 3})
    for (const ZeroCase& mesh : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"1f1b", 2, 2, 1, 1, true}}) {
      SCOPED_TRACE(text_of(mesh) + fmt::format(" stage {}", stage));
      const PretrainConfig adam = zero_run(mesh, stage), muon = with_muon(adam);
      const double planned = plan_of(muon).traffic[0].data - plan_of(adam).traffic[0].data;
      double sent = 0;
      const std::unique_ptr<DataSource> data = few_tokens(muon.model);
      run_on_ranks(muon.mesh, [&](Communicator& world) {
        Trainer trainer(world, muon, *data, nullptr);
        const Communicator& ranks = trainer.replica().mesh().comm(kStageAxes);
        const int64_t before = ranks.bytes_sent();
        trainer.step();
        if (world.rank() == 0) sent = static_cast<double>(ranks.bytes_sent() - before);
      });
      EXPECT_EQ(sent, planned);
      EXPECT_EQ(sent > 0, stage > 0 || mesh.tp > 1);
    }
}

// The momentum of matrices replaces both moments of adam.
TEST(MuonRuns, NeedLessStateThanAdam) {
  PretrainConfig config = zero_run({"1f1b", 1, 1, 1, 1, false}, 0);
  const size_t adam = plan_of(config).memory[0].optimizer;
  const PlanReport muon = plan_of(with_muon(config));
  const size_t work = 2 * 128 * 32 * 4 + 2 * 32 * 32 * 4 + 16 * 8;  // the largest matrix
  const size_t matrices = size_t{4} * 12 * 32 * 32 * sizeof(float);
  EXPECT_EQ(muon.memory[0].optimizer, adam - matrices + work);
}

class MuonResume : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("trifold_muon_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(MuonResume, IsBitwiseExact) {
  for (const int stage : {0, 1, 3}) {
    SCOPED_TRACE(stage);
    const PretrainConfig config = with_muon(zero_run({"1f1b", 2, 2, 1, 1, true}, stage));
    const std::string save = (folder_ / std::to_string(stage)).string();
    const Curve whole = train(config);
    train(config, 10, "", save);
    const Curve second = train(config, 0, save);
    ASSERT_EQ(second.losses.size(), 10U);
    EXPECT_EQ(first_difference(std::span<const double>(whole.losses).subspan(10),
                               std::span<const double>(second.losses)),
              kSame);
  }
}

TEST_F(MuonResume, OnAnotherMeshAgreesWithinRounding) {
  const auto run = [](const ZeroCase& mesh, int stage) {
    PretrainConfig config = with_muon(zero_run(mesh, stage, true));
    config.batch.global_batch_size = 8;
    return config;
  };
  const Curve whole = train(run({"1f1b", 1, 1, 1, 1, false}, 0));
  train(run({"1f1b", 2, 2, 1, 1, true}, 1), 10, "", folder_.string());
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 1, 1, 1, 1, false}, ZeroCase{"1f1b", 4, 1, 2, 1, false}}) {
    const Curve second = train(run(mesh, mesh.dp == 4 ? 3 : 0), 0, folder_.string());
    ASSERT_EQ(second.losses.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_LT(relative_error(second.losses[i], whole.losses[i + 10]), 1e-10);
  }
}

}  // namespace
}  // namespace trifold::test
