// Saved on one mesh, loaded on another: every tensor keeps its bits, and training continues along the curve.
#pragma once

#include <gtest/gtest.h>

#include "checkpoint/inspect.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {

// A mesh and everything else that decides how a rank holds the state.
struct ReshardLayout {
  int dp, tp, pp;
  int zero = 0;
  const char* schedule = "1f1b";
  int chunks = 1;
  bool sequence_parallel = false;
  int64_t divisible_by = 16;  // pads 50 tokens differently, with tp
  const char* precision = "f32";
};

inline std::string name_of(const ReshardLayout& l) {
  return fmt::format("dp{}tp{}pp{} zero{} {} {}{}", l.dp, l.tp, l.pp, l.zero, l.schedule, l.precision,
                     l.sequence_parallel ? " sp" : "");
}

constexpr int64_t kSteps = 6;
constexpr int64_t kSavedAfter = 3;

inline PretrainConfig config_of(const ReshardLayout& l, const PretrainConfig& base) {
  PretrainConfig config = base;
  if (l.schedule != std::string("1f1b") || l.pp > 1) config = scheduled(config, l.schedule, l.chunks);
  config = on_mesh(config, l.dp, l.tp, l.pp);
  config.mesh.sequence_parallel = l.sequence_parallel;
  config.mesh.distributed_timeout_minutes = 5;
  config.zero.zero_stage = l.zero;
  config.zero.zero_min_unit_params = 1000;
  config.model.make_vocab_size_divisible_by = l.divisible_by;
  config.precision.bf16 = l.precision == std::string("bf16");
  config.precision.fp16 = l.precision == std::string("fp16");
  config.precision.f64 = l.precision == std::string("f64");
  if (config.precision.fp16) config.precision.initial_loss_scale = 1024;
  return config;
}

// 7 layers, 8 heads, a tied head, dropout and a vocabulary of 50: nothing divides by chance.
inline PretrainConfig run(const std::string& optimizer = "adam") {
  PretrainConfig config = small_run();
  config.model.num_layers = 7;
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 64;
  config.model.seq_length = config.model.max_position_embeddings.emplace(8);
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 16;
  config.batch.train_iters = kSteps;
  config.lr.lr_decay_iters = kSteps;
  config.optimizer.optimizer = value_named<OptimizerKind>(optimizer).value();
  return config;
}

inline const std::vector<ReshardLayout>& layouts_of_8() {
  static const std::vector<ReshardLayout> kLayouts = {
      {8, 1, 1, 0},
      {8, 1, 1, 1},
      {8, 1, 1, 3, "1f1b", 1, false, 128},
      {1, 8, 1, 0, "1f1b", 1, true, 1},
      {4, 2, 1, 2},
      {2, 2, 2, 1, "1f1b", 1, true, 7},
      {1, 1, 8, 0, "gpipe"},
      {2, 1, 4, 3, "zb-h1"},
      {1, 4, 2, 0, "zb-v", 2},
      {2, 4, 1, 3, "1f1b", 1, true},
      {1, 2, 3, 0, "interleaved", 3},  // 6 ranks
      {1, 1, 1, 0},
  };
  return kLayouts;
}

inline const std::vector<ReshardLayout>& layouts_of_16() {
  static const std::vector<ReshardLayout> kLayouts = {
      {16, 1, 1, 3},
      {4, 4, 1, 2, "1f1b", 1, true},
      {4, 2, 2, 3, "1f1b", 1, false, 5},
      {2, 2, 4, 1, "zb-h1", 1, true},
      {2, 8, 1, 1},
  };
  return kLayouts;
}

class Reshard : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("trifold_reshard_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The folder of a checkpoint from half-way through a run of this layout; made on first use.
  std::string saved_on(const ReshardLayout& layout, const PretrainConfig& base) {
    const std::string path = (folder_ / name_of(layout)).string();
    if (!std::filesystem::exists(path)) train(config_of(layout, base), kSavedAfter, "", path);
    return path;
  }

  // Loads `from`, saves at once, compares all tensors, and continues to the end.
  void check_pair(const std::string& from, const ReshardLayout& to, const PretrainConfig& base,
                  const Curve& whole, double tolerance) {
    const PretrainConfig config = config_of(to, base);
    const std::string again = (folder_ / "again").string();
    std::filesystem::remove_all(again);
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    std::vector<double> losses;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      trainer.load(from);
      trainer.save(again);
      while (trainer.steps_done() < kSteps)
        for (const StepReport& step : trainer.advance())
          if (world.rank() == 0) losses.push_back(step.loss);
    });
    CheckpointReader left(from);
    CheckpointReader right(again);
    const CheckpointDifference found = difference(left, right);
    EXPECT_TRUE(found.bitwise_equal()) << to_text(found);
    EXPECT_EQ(found.tensors_equal, static_cast<int64_t>(left.tensors().size()));
    ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps - kSavedAfter));
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_LT(relative_error(losses[i], whole.losses[i + kSavedAfter]), tolerance) << "step " << i;
  }

  std::filesystem::path folder_;
};

}  // namespace trifold::test
