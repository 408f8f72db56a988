// A global batch in which no token counts is skipped on every mesh: the run goes on as if the data did not have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"

namespace trifold::test {
namespace {

constexpr int64_t kMaskedBatch = 8;
constexpr int64_t kMaskedStep = 3;  // counts from 1

// Another source with one more global batch, whose tokens are all masked out of the loss.
class WithMaskedBatch final : public DataSource {
 public:
  explicit WithMaskedBatch(const DataSource& source) : source_(source) {}
  int64_t seq_length() const override { return source_.seq_length(); }
  int64_t samples() const override { return source_.samples(); }
  void read(Batch& batch, int64_t first_sample) const override {
    const bool masked = first_sample / kMaskedBatch == kMaskedStep - 1;
    source_.read(
        batch, first_sample < (kMaskedStep - 1) * kMaskedBatch ? first_sample : first_sample - kMaskedBatch);
    batch.first_sample = first_sample;
    if (masked) std::fill_n(batch.loss_weight.as<float>(), batch.loss_weight.elements(), 0.0F);
  }

 private:
  const DataSource& source_;
};

PretrainConfig masked_run() {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = 5;
  config.lr.lr_warmup_iters = 2;
  config.lr.lr_decay_iters = 5;
  config.eval.eval_iters = 2;
  return config;
}

struct Steps {
  std::vector<StepReport> reports;
  double valid = 0;
};

Steps steps_of(const PretrainConfig& config, const DataSource& data, const DataSource& valid,
               int64_t save_at = 0) {
  const TempDir folder;
  Steps steps;
  const auto part = [&](bool resumes, int64_t last) {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, &valid);
      if (resumes) trainer.load(folder.path().string());
      while (trainer.steps_done() < last)
        for (const StepReport& step : trainer.advance())
          if (world.rank() == 0) steps.reports.push_back(step);
      if (last == save_at) trainer.save(folder.path().string());
      const double loss = trainer.evaluate().loss;
      if (world.rank() == 0) steps.valid = loss;
    });
  };
  if (save_at > 0) part(false, save_at);
  part(save_at > 0, config.batch.train_iters);
  return steps;
}

void expect_skipped(const Steps& masked, const Steps& plain) {
  ASSERT_EQ(masked.reports.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    const StepReport& step = masked.reports[i];
    EXPECT_EQ(step.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(step.consumed_samples, kMaskedBatch * step.step);
    if (step.step == kMaskedStep) {
      EXPECT_EQ(step.skip, StepSkip::NoTokens);
      EXPECT_TRUE(std::isnan(step.loss));
      EXPECT_EQ(step.grad_norm, 0);
      continue;
    }
    EXPECT_FALSE(step.skipped());
    const StepReport& other = plain.reports[step.step < kMaskedStep ? i : i - 1];
    EXPECT_LT(relative_error(step.loss, other.loss), 1e-11);
    EXPECT_LT(relative_error(step.grad_norm, other.grad_norm), 1e-10);
    EXPECT_EQ(step.lr, other.lr);
  }
  EXPECT_LT(relative_error(masked.valid, plain.valid), 1e-11);
}

TEST(MaskedBatch, IsSkippedOnEveryMesh) {
  const PretrainConfig base = masked_run();
  const std::unique_ptr<DataSource> data = few_tokens(base.model);
  const WithMaskedBatch masked(*data);
  PretrainConfig shorter = base;
  shorter.batch.train_iters = 4;
  const Steps plain = steps_of(shorter, *data, *data);
  for (const auto& [dp, tp, pp, zero, schedule] : {std::tuple{1, 1, 1, 0, "1f1b"},
                                                   {2, 1, 1, 1, "1f1b"},
                                                   {4, 1, 1, 3, "1f1b"},
                                                   {1, 2, 1, 0, "1f1b"},
                                                   {2, 1, 2, 2, "zb-h1"}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} pp {} zero {} {}", dp, tp, pp, zero, schedule));
    PretrainConfig config = scheduled(on_mesh(base, dp, tp, pp), schedule);
    config.zero.zero_stage = zero;
    expect_skipped(steps_of(config, masked, *data), plain);
  }
}

TEST(MaskedBatch, IsSkippedAfterAResume) {
  const PretrainConfig base = masked_run();
  const std::unique_ptr<DataSource> data = few_tokens(base.model);
  const WithMaskedBatch masked(*data);
  PretrainConfig shorter = base;
  shorter.batch.train_iters = 4;
  const Steps plain = steps_of(shorter, *data, *data);
  for (const int64_t save_at : {kMaskedStep - 1, kMaskedStep})
    expect_skipped(steps_of(base, masked, *data, save_at), plain);
}

// It says nothing about the loss scale.
TEST(MaskedBatch, LeavesTheLossScaleAlone) {
  PretrainConfig config = masked_run();
  config.precision.f64 = false;
  config.precision.fp16 = true;
  config.precision.initial_loss_scale = 1024;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const WithMaskedBatch masked(*data);
  const Steps steps = steps_of(config, masked, *data);
  EXPECT_EQ(steps.reports[kMaskedStep - 1].skip, StepSkip::NoTokens);
  for (const StepReport& step : steps.reports) EXPECT_EQ(step.next_loss_scale, 1024);
}

TEST(MaskedBatch, IsSkippedBetweenUpdatesInsideAPipeline) {
  PretrainConfig config = scheduled(on_mesh(masked_run(), 2, 1, 2), "pipedream");
  config.pipeline.async_window = 5;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const WithMaskedBatch masked(*data);
  const Steps steps = steps_of(config, masked, *data);
  ASSERT_EQ(steps.reports.size(), 5U);
  for (const StepReport& step : steps.reports) {
    EXPECT_EQ(step.skip, step.step == kMaskedStep ? StepSkip::NoTokens : StepSkip::None);
    EXPECT_EQ(std::isfinite(step.loss), step.step != kMaskedStep);
  }
  EXPECT_EQ(steps.reports[3].lr, steps.reports[2].lr);  // of as many updates
  EXPECT_TRUE(std::isfinite(steps.valid));
}

}  // namespace
}  // namespace trifold::test
