// Training in 16 bits: the curve is that of f32 within rounding, an overflow on one rank skips the step on
// all, and a resumed run repeats the bits.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig in(DType dtype, PretrainConfig config = small_run()) {
  config.precision.bf16 = dtype == DType::BF16;
  config.precision.fp16 = dtype == DType::F16;
  if (dtype == DType::F16) config.precision.initial_loss_scale = 1024;
  return config;
}

std::vector<StepReport> steps_of(const PretrainConfig& config, int steps) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  std::vector<StepReport> reports;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    for (int i = 0; i < steps; ++i) {
      const StepReport report = trainer.step();
      if (world.rank() == 0) reports.push_back(report);
    }
  });
  return reports;
}

TEST(Precision, SixteenBitsTrainLikeF32) {
  const std::vector<StepReport> exact = steps_of(small_run(), 20);
  for (DType dtype : {DType::BF16, DType::F16}) {
    const std::vector<StepReport> got = steps_of(in(dtype), 20);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(got[i].loss, exact[i].loss, 0.01 * exact[i].loss) << name_of(dtype) << " step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, exact[i].grad_norm, 0.05 * exact[i].grad_norm) << name_of(dtype);
      EXPECT_FALSE(got[i].skipped());
    }
    EXPECT_NE(got.back().loss, exact.back().loss);
    EXPECT_LT(got.back().loss, 0.8 * got.front().loss);
  }
}

TEST(Precision, PipelinesAndShardedStatesKeepTheBits) {
  for (DType dtype : {DType::BF16, DType::F16}) {
    PretrainConfig config = in(dtype, on_mesh(small_run(), 2));
    const std::vector<StepReport> whole = steps_of(config, 5);
    config.zero.zero_stage = 3;
    const std::vector<StepReport> sharded = steps_of(config, 5);
    const std::vector<StepReport> cut = steps_of(in(dtype, on_mesh(small_run(), 2, 1, 2)), 5);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(sharded[i].loss, whole[i].loss) << name_of(dtype);
      EXPECT_EQ(cut[i].loss, whole[i].loss) << name_of(dtype);
      EXPECT_EQ(sharded[i].grad_norm, whole[i].grad_norm) << name_of(dtype);
    }
  }
}

TEST(Precision, GradientsThatTravelInBf16KeepTheBitsOfEveryStage) {
  for (DType dtype : {DType::BF16, DType::F16}) {
    PretrainConfig config = in(dtype, on_mesh(small_run(), 2));
    const std::vector<StepReport> wide = steps_of(config, 5);
    config.precision.grad_reduce_in_bf16 = true;
    const std::vector<StepReport> whole = steps_of(config, 5);
    EXPECT_NE(whole.back().grad_norm, wide.back().grad_norm) << name_of(dtype);
    for (int stage : {1, 2, 3}) {
      config.zero.zero_stage = stage;
      const std::vector<StepReport> sharded = steps_of(config, 5);
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(sharded[i].loss, whole[i].loss) << name_of(dtype) << " stage " << stage;
        EXPECT_EQ(sharded[i].grad_norm, whole[i].grad_norm) << name_of(dtype) << " stage " << stage;
      }
    }
  }
}

// Samples that are fine but for one, whose label counts so much that its gradient is beyond f16.
class OneSpike final : public DataSource {
 public:
  OneSpike(int64_t seq_length, int64_t sample) : tokens_(seq_length, 7, 11), sample_(sample) {}
  int64_t seq_length() const override { return tokens_.seq_length(); }
  int64_t samples() const override { return tokens_.samples(); }
  void read(Batch& batch, int64_t first) const override {
    tokens_.read(batch, first);
    const int64_t row = sample_ - first;
    if (row >= 0 && row < batch.samples()) batch.loss_weight.as<float>()[row * batch.seq_length()] = 1e5F;
  }

 private:
  SyntheticTokens tokens_;
  int64_t sample_;
};

std::vector<double> weights_of(Trainer& trainer) {
  const ParamList& params = trainer.replica().model().params;
  const ParamSource& weights = trainer.replica().weights();
  std::vector<double> values;
  for (int i = 0; i < params.size(); ++i) {
    const Tensor w = weights.weight({i});
    dispatch_float(w.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t e = 0; e < w.elements(); ++e) values.push_back(static_cast<double>(w.as<T>()[e]));
    });
  }
  return values;
}

TEST(Precision, AnOverflowOnOneRankSkipsTheStepOnAll) {
  PretrainConfig config = in(DType::F16, on_mesh(small_run(), 2));
  config.precision.hysteresis = 1;
  config.lr.lr_warmup_init = 1e-4;  // so that the first step moves the weights
  // Global batch 4 (step 5) has samples 32 to 39; micro-batches of 2 alternate between the ranks: 38 is rank
  // 1's.
  const OneSpike data(config.model.seq_length, 38);
  std::vector<std::vector<StepReport>> reports(2);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    auto& mine = reports[static_cast<size_t>(world.rank())];
    for (int i = 0; i < 8; ++i) {
      const std::vector<double> before = weights_of(trainer);
      mine.push_back(trainer.step());
      const std::vector<double> after = weights_of(trainer);
      EXPECT_EQ(after == before, i == 4) << "step " << i + 1;
    }
  });
  for (size_t i = 0; i < 8; ++i) {
    for (const auto& rank : reports) {
      EXPECT_EQ(rank[i].skipped(), i == 4) << "step " << i + 1;
      EXPECT_EQ(rank[i].loss_scale, i <= 4 ? 1024 : 512);
    }
    EXPECT_EQ(reports[0][i].loss, reports[1][i].loss);
  }
  EXPECT_EQ(reports[0][5].lr, reports[0][4].lr) << "a skipped step does not move the schedule";
  EXPECT_LT(reports[0][7].loss, reports[0][0].loss);
}

// Makes an activation's gradient infinite on this rank, when a sample comes to a block.
class InfiniteGradient final : public StepWatch {
 public:
  explicit InfiniteGradient(int64_t sample) : sample_(sample) {}
  void begin(const Action&, int, const Batch& batch, const ParamSource&, Stream&) override {
    here_ = batch.first_sample <= sample_ && sample_ < batch.first_sample + batch.samples();
  }
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream&) override {
    if (here_ && layer == "block.1.attention.out" && what == "input gradient")
      tensor.as<Float16>()[3] = Float16(std::numeric_limits<float>::infinity());
  }
  void end(Stream&) override {}
  void after(const Action&) override {}

 private:
  int64_t sample_;
  bool here_ = false;
};

// One rank of each mesh meets it: of the data axis the last, of the tensor axis the last, of the pipeline the
// one with the block.
TEST(Precision, AnOverflowOnOneRankOfAnyMeshSkipsTheStepOnAll) {
  struct Mesh {
    int dp, tp, pp, zero;
    std::string schedule;
  };
  for (const Mesh& mesh : {Mesh{1, 2, 1, 0, "1f1b"}, Mesh{1, 1, 2, 0, "zb-h1"}, Mesh{2, 1, 1, 3, "1f1b"},
                           Mesh{2, 2, 2, 1, "1f1b"}, Mesh{2, 1, 2, 2, "gpipe"}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} pp {} zero {}", mesh.dp, mesh.tp, mesh.pp, mesh.zero));
    PretrainConfig config =
        scheduled(in(DType::F16, on_mesh(small_run(), mesh.dp, mesh.tp, mesh.pp)), mesh.schedule);
    config.precision.hysteresis = 1;
    config.lr.lr_warmup_init = 1e-4;
    config.zero.zero_stage = mesh.zero;
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    std::vector<std::vector<StepReport>> reports(static_cast<size_t>(config.mesh.ranks));
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      const int tp = trainer.replica().mesh().coord(Axis::Tp);
      InfiniteGradient fault(23);  // of step 3, the last of its data-parallel ranks
      if (tp + 1 == mesh.tp) trainer.watch(&fault);
      const auto state = [&] {
        std::vector<float> values;
        for (const ShardedOptimizer::Piece& piece : trainer.optimizer().pieces())
          values.insert(values.end(), piece.values.as<float>(),
                        piece.values.as<float>() + piece.values.elements());
        return values;
      };
      for (int i = 0; i < 6; ++i) {
        const std::vector<float> before = state();
        reports[static_cast<size_t>(world.rank())].push_back(trainer.step());
        EXPECT_EQ(state() == before, i == 2) << "step " << i + 1;
      }
    });
    for (const auto& rank : reports)
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(rank[i].skipped(), i == 2) << "step " << i + 1;
        EXPECT_EQ(rank[i].loss_scale, i <= 2 ? 1024 : 512);
        EXPECT_EQ(rank[i].next_loss_scale, i < 2 ? 1024 : 512);
        EXPECT_EQ(rank[i].loss, reports[0][i].loss);
      }
    EXPECT_LT(reports[0][5].loss, reports[0][0].loss);
  }
}

TEST(Precision, TheScaleIsFoundFromFarAbove) {
  PretrainConfig config = in(DType::F16);
  config.precision.initial_loss_scale = std::ldexp(1.0, 32);
  config.batch.train_iters = 30;
  const std::vector<StepReport> reports = steps_of(config, 30);
  EXPECT_TRUE(reports[0].skipped() && reports[1].skipped());
  EXPECT_FALSE(reports[29].skipped());
  EXPECT_LT(reports[29].loss_scale, std::ldexp(1.0, 26));
  EXPECT_LT(reports[29].loss, reports[0].loss);
}

TEST(Precision, AnOverflowAtTheSmallestScaleIsAnError) {
  PretrainConfig config = in(DType::F16);
  config.precision.hysteresis = 1;
  config.precision.min_loss_scale = 1024;
  const OneSpike data(config.model.seq_length, 1);
  EXPECT_THROW(
      run_on_ranks(config.mesh, [&](Communicator& world) { Trainer(world, config, data, nullptr).step(); }),
      Error);
}

TEST(Precision, AResumedRunRepeatsTheBits) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "trifold_precision_test";
  for (DType dtype : {DType::BF16, DType::F16}) {
    std::filesystem::remove_all(folder);
    PretrainConfig config = in(dtype);
    config.precision.loss_scale_window = dtype == DType::F16 ? 3 : 1000;  // so that the scale changes
    const std::vector<StepReport> whole = steps_of(config, 10);
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      {
        Trainer first(world, config, data, nullptr);
        for (int i = 0; i < 5; ++i) first.step();
        first.save(folder.string());
      }
      Trainer second(world, config, data, nullptr);
      second.load(folder.string());
      for (size_t i = 5; i < 10; ++i) {
        const StepReport report = second.step();
        EXPECT_EQ(report.loss, whole[i].loss) << name_of(dtype) << " step " << i + 1;
        EXPECT_EQ(report.loss_scale, whole[i].loss_scale);
        EXPECT_EQ(report.grad_norm, whole[i].grad_norm);
      }
    });
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trifold::test
