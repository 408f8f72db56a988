// Runs of whole passes: the last global batch may be smaller, on every mesh and under every schedule.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

constexpr int64_t kBatch = 12;

// As the command line resolves it for data of `samples` samples in all passes.
PretrainConfig passes_run(int64_t samples, int64_t batch = kBatch) {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = batch;
  config.batch.train_epochs = 1;
  config.batch.pass_samples = samples;
  config.batch.train_iters = (samples + batch - 1) / batch;
  config.lr.lr_warmup_iters = 0;
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  config.lr.min_lr = 0;
  return config;
}

// Counts the samples read from a source.
class Counting final : public DataSource {
 public:
  explicit Counting(int64_t samples) : data_(16, 7, 11), samples_(samples) {}
  int64_t seq_length() const override { return data_.seq_length(); }
  int64_t samples() const override { return samples_; }
  void read(Batch& batch, int64_t first_sample) const override {
    data_.read(batch, first_sample);
    const std::lock_guard lock(mutex_);
    for (int64_t b = 0; b < batch.samples(); ++b) ++seen_[first_sample + b];
  }
  const std::map<int64_t, int>& seen() const { return seen_; }

 private:
  SyntheticTokens data_;
  int64_t samples_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, int> seen_;
};

// Trains, then evaluates on 20 samples: fewer than --eval-iters asks for with any batch.
Curve trained(const PretrainConfig& config) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const Counting valid(20);
  Curve curve;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &valid);
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        curve.losses.push_back(step.loss);
        curve.grad_norms.push_back(step.grad_norm);
      }
    const EvalReport report = trainer.evaluate();
    if (world.rank() != 0) return;
    curve.valid_loss = report.loss;
    EXPECT_EQ(report.tokens, 20 * config.model.seq_length);
  });
  return curve;
}

void expect_near(const Curve& a, const Curve& b, double tolerance = 1e-11) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LT(relative_error(a.losses[i], b.losses[i]), tolerance) << "step " << i + 1;
    EXPECT_LT(relative_error(a.grad_norms[i], b.grad_norms[i]), tolerance) << "step " << i + 1;
  }
  EXPECT_LT(relative_error(*a.valid_loss, *b.valid_loss), tolerance);  // of the weights after the last step
}

// A batch with padding is the batch without it.
TEST(LastBatch, IsTheOneOfItsSamplesAlone) {
  for (int64_t left = 1; left <= kBatch; ++left) {
    SCOPED_TRACE(left);
    const Curve padded = trained(passes_run(left));
    ASSERT_EQ(padded.losses.size(), 1U);
    expect_near(padded, trained(passes_run(left, left)));
  }
}

struct Place {
  int dp, tp, pp, micro_batch;
  std::string schedule = "1f1b";
  int chunks = 1;
  int zero_stage = 0;
};

TEST(LastBatch, GivesTheSameOnEveryMesh) {
  const std::vector<Place> places = {{3, 1, 1, 1},
                                     {3, 1, 1, 4},
                                     {4, 1, 1, 1, "1f1b", 1, 3},
                                     {1, 1, 2, 2, "zb-h1"},
                                     {3, 1, 2, 2, "interleaved", 2, 1},
                                     {2, 2, 2, 1, "1f1b", 1, 2}};
  for (const int64_t left : {1, 2, 5, 7, 11, 12}) {
    PretrainConfig config = passes_run(2 * kBatch + left);
    config.model.num_layers = 4;
    const Curve one = trained(config);
    ASSERT_EQ(one.losses.size(), 3U);
    for (const Place& p : places) {
      SCOPED_TRACE(fmt::format("{} left, dp {} tp {} pp {} {}", left, p.dp, p.tp, p.pp, p.schedule));
      PretrainConfig there = scheduled(on_mesh(config, p.dp, p.tp, p.pp), p.schedule, p.chunks);
      there.batch.micro_batch_size = p.micro_batch;
      there.zero.zero_stage = p.zero_stage;
      expect_near(trained(there), one);
    }
  }
}

// Updates inside the plan, of which the last has fewer samples.
TEST(LastBatch, EndsAnAsynchronousRun) {
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    PretrainConfig config = scheduled(on_mesh(passes_run(4 * kBatch + 5), 1, 1, 2), schedule);
    config.optimizer.clip_grad = 0;
    config.pipeline.async_window = 3;  // the last window has two batches
    PretrainConfig alone = config;
    alone.batch.micro_batch_size = 3;  // as many micro-batches: how stale weights are depends on that
    const Curve one = trained(alone);
    ASSERT_EQ(one.losses.size(), 5U);
    expect_near(trained(on_mesh(config, 3, 1, 2)), one);
    PretrainConfig longer = alone;
    longer.batch.pass_samples = 5 * kBatch;
    EXPECT_GT(relative_error(train(longer).losses.back(), one.losses.back()), 1e-6);
  }
}

TEST(LastBatch, TakesEverySampleOnce) {
  for (int64_t samples = 2 * kBatch + 1; samples <= 3 * kBatch; ++samples) {
    PretrainConfig config = on_mesh(passes_run(samples), 3);
    config.batch.micro_batch_size = 2;
    const Counting data(samples);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      int64_t tokens = 0;
      StepReport last;
      while (trainer.steps_done() < config.batch.train_iters) tokens += (last = trainer.step()).tokens;
      EXPECT_EQ(trainer.steps_done(), 3);
      EXPECT_EQ(last.consumed_samples, samples);
      EXPECT_EQ(tokens, samples * config.model.seq_length);
    });
    EXPECT_EQ(static_cast<int64_t>(data.seen().size()), samples);
    for (const auto& [sample, count] : data.seen()) EXPECT_EQ(count, 1) << "sample " << sample;
  }
}

TEST(LastBatch, ResumesToTheBit) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / fmt::format("trifold_epochs_{}", getpid());
  const std::string first = (root / "a").string(), second = (root / "b").string();
  const PretrainConfig config = passes_run(2 * kBatch + 5);
  const Curve whole = train(config);
  train(config, 2, "", first);
  Curve rest = train(config, 0, first, second);
  ASSERT_EQ(rest.losses.size(), 1U);
  EXPECT_EQ(rest.losses[0], whole.losses[2]);
  // Further passes continue after the last sample: 5 + 29 samples are left, the first of their steps full again.
  PretrainConfig more = config;
  more.batch.train_epochs = 2;
  more.batch.pass_samples = 2 * (2 * kBatch + 5);
  more.batch.train_iters = 3 + 3;
  const Counting data(*more.batch.pass_samples);
  run_on_ranks(more.mesh, [&](Communicator& world) {
    Trainer trainer(world, more, data, nullptr);
    trainer.load(second);
    EXPECT_EQ(trainer.step().consumed_samples, 2 * kBatch + 5 + kBatch);
    trainer.step();
    EXPECT_EQ(trainer.step().consumed_samples, *more.batch.pass_samples);
  });
  EXPECT_EQ(data.seen().begin()->first, 2 * kBatch + 5);
  EXPECT_EQ(static_cast<int64_t>(data.seen().size()), 2 * kBatch + 5);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace trifold::test
