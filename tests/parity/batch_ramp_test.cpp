// Values of training that change: the batch grows (--rampup-batch-size), the weight decay grows. The same curve on every
// mesh, exact resume from every step, and memory as planned.
#include <gtest/gtest.h>

#include "plan/report.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// 4, 8, 12 and 16 samples: 10, 5, 4 and from then on steps.
PretrainConfig ramped() {
  PretrainConfig config = small_run();
  config.batch.rampup_batch_size = {{4}, {4}, {120}};
  config.batch.global_batch_size = 16;
  config.batch.train_iters = 22;
  config.lr.lr_decay_iters.reset();
  config.lr.lr_warmup_iters = 0;
  config.lr.lr_warmup_samples = 24;
  config.lr.lr_decay_samples = run_spec(config).batch_sizes.samples_of(22);
  config.optimizer.weight_decay_incr_style = WeightDecayStyle::Cosine;
  config.optimizer.start_weight_decay = 0.0;
  config.optimizer.end_weight_decay = 0.5;
  return config;
}

constexpr int64_t kSizes[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 8, 8, 8, 8, 8, 12, 12, 12, 12, 16, 16, 16};

std::vector<StepReport> reports_of(const PretrainConfig& config) {
  std::vector<StepReport> reports;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance())
        if (world.rank() == 0) reports.push_back(step);
  });
  return reports;
}

TEST(BatchRamp, TakesTheSamplesOfEverySize) {
  const PretrainConfig config = ramped();
  const std::vector<StepReport> reports = reports_of(config);
  ASSERT_EQ(reports.size(), std::size(kSizes));
  int64_t consumed = 0;
  const int64_t all = run_spec(config).batch_sizes.samples_of(22);
  for (size_t i = 0; i < reports.size(); ++i) {
    // Rates are those of the samples before the step, in closed form.
    const double n = static_cast<double>(consumed), r = (n - 24) / static_cast<double>(all - 24);
    const double lr = n <= 24 ? 3e-3 * n / 24 : 3e-4 + 2.7e-3 * (1 + std::cos(M_PI * r)) / 2;
    EXPECT_NEAR(reports[i].lr, lr, 1e-12) << i;
    EXPECT_NEAR(reports[i].weight_decay.value_or(-1),
                0.25 * (1 - std::cos(M_PI * n / static_cast<double>(all))), 1e-12);
    consumed += kSizes[i];
    EXPECT_EQ(reports[i].samples, kSizes[i]) << i;
    EXPECT_EQ(reports[i].consumed_samples, consumed) << i;
    EXPECT_EQ(reports[i].tokens, kSizes[i] * 16) << i;
  }
  EXPECT_LT(reports.back().loss, 0.8 * reports.front().loss);
}

// The first steps are those of a run whose batches all have the first size.
TEST(BatchRamp, BeginsAsARunWithTheFirstSize) {
  PretrainConfig config = ramped(), plain = config;
  plain.batch.rampup_batch_size.clear();
  plain.batch.global_batch_size = 4;
  plain.lr.lr_warmup_samples.reset();
  plain.lr.lr_warmup_iters = 6;
  const int64_t all = *config.lr.lr_decay_samples;
  plain.lr.lr_decay_samples.reset();
  plain.lr.lr_decay_iters = all / 4;
  plain.batch.train_iters = all / 4;  // as many samples: the same weight decay
  const Curve ramp = train(config, 10), same = train(plain, 10);
  EXPECT_EQ(first_difference(std::span<const double>(ramp.losses), std::span<const double>(same.losses)),
            kSame);
}

std::vector<PretrainConfig> equal_meshes(const PretrainConfig& config) {
  PretrainConfig sharded = on_mesh(config, 1, 1, 2);
  return {scheduled(sharded, "1f1b"), scheduled(sharded, "gpipe"), scheduled(sharded, "zb-h1"),
          scheduled(sharded, "auto")};
}

TEST(BatchRamp, IsTheSameOverPipelinesAndStages) {
  PretrainConfig config = ramped();
  const Curve one = train(config);
  for (const PretrainConfig& mesh : equal_meshes(config)) {
    SCOPED_TRACE(mesh.pipeline.schedule->text());
    const Curve other = train(mesh);
    EXPECT_EQ(first_difference(std::span<const double>(one.losses), std::span<const double>(other.losses)),
              kSame);
  }
}

TEST(BatchRamp, IsTheSameOverDataAndTensorRanksAndZero) {
  PretrainConfig config = ramped();
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;
  const Curve one = train(config);
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    PretrainConfig mesh = on_mesh(config, 2, 2);
    mesh.zero.zero_stage = stage;
    if (stage == 2) mesh.zero.zero_reduce = ReducePolicy::Each;
    const Curve other = train(mesh);
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_LT(relative_error(other.losses[i], one.losses[i]), 1e-11) << i;
  }
}

TEST(BatchRamp, ResumesExactlyFromEveryStep) {
  const PretrainConfig config = on_mesh(ramped(), 2);
  const Curve whole = train(config);
  for (int64_t stop = 1; stop < 22; ++stop) {
    SCOPED_TRACE(stop);
    const TempDir folder;
    const Curve first = train(config, stop, "", folder.path().string());
    const Curve second = train(config, 0, folder.path().string());
    std::vector<double> both = first.losses;
    both.insert(both.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(first_difference(std::span<const double>(both), std::span<const double>(whole.losses)), kSame);
  }
}

// An asynchronous pipeline drains where the size changes.
TEST(BatchRamp, ResumesExactlyInsideAnAsynchronousPipeline) {
  PretrainConfig config = scheduled(on_mesh(ramped(), 1, 1, 2), "pipedream-2bw");
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 3;
  const Curve whole = train(config);
  ASSERT_EQ(whole.losses.size(), 22U);
  EXPECT_LT(whole.losses.back(), 0.9 * whole.losses.front());
  const TempDir folder;
  const Curve first = train(config, 12, "", folder.path().string());
  const Curve second = train(config, 0, folder.path().string());
  ASSERT_EQ(first.losses.size() + second.losses.size(), 22U);
  for (size_t i = 0; i < second.losses.size(); ++i)
    EXPECT_EQ(second.losses[i], whole.losses[first.losses.size() + i]) << i;
}

TEST(BatchRamp, NeedsThePlannedMemoryAtEverySize) {
  PretrainConfig config = scheduled(on_mesh(ramped(), 1, 1, 2), "gpipe");
  config.batch.micro_batch_size = 1;
  const RunSpec run = run_spec(config);
  const PlannedRuns plans(run);
  ASSERT_EQ(plans.all().size(), 4U);
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, plans, *data, nullptr);
    size_t before = 0;
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      trainer.step();
      const auto plan = plans.find(kSizes[i], 1);
      ASSERT_NE(plan, nullptr);
      const MemoryReport planned = planned_ranks(*plan)[static_cast<size_t>(world.rank())].memory;
      EXPECT_EQ(trainer.memory().predicted_activations, planned.predicted_activations) << i;
      EXPECT_EQ(trainer.memory().predicted_total(), planned.predicted_total()) << i;
      EXPECT_GE(trainer.memory().predicted_activations, before);
      before = trainer.memory().predicted_activations;
    }
  });
}

// The first size lasts for one step, in which a pipeline needs one version of the weights.
TEST(BatchRamp, HasTheWeightVersionsOfEverySize) {
  PretrainConfig config = scheduled(on_mesh(ramped(), 1, 1, 2), "pipedream");
  config.batch.rampup_batch_size = {{4}, {4}, {4}};
  config.batch.global_batch_size = 8;
  config.lr.lr_decay_samples = run_spec(config).batch_sizes.samples_of(22);
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 16;
  const PlannedRuns plans(run_spec(config));
  const auto last = plans.all().back();
  ASSERT_EQ(plans.first().order().batches, 1);
  ASSERT_GT(last->order().batches, 1);
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, plans, *data, nullptr);
    const MemoryReport planned = planned_ranks(*last)[static_cast<size_t>(world.rank())].memory;
    EXPECT_EQ(trainer.memory().parameters, planned.parameters);
  });
}

TEST(BatchRamp, EndsWithASmallerBatchAfterWholePasses) {
  PretrainConfig config = ramped();
  config.batch.pass_samples = 150;  // the last of the batches of 12 or 16 is cut
  const BatchSizes sizes = run_spec(config).batch_sizes;
  config.batch.train_iters = sizes.steps_to(150);
  const std::vector<StepReport> reports = reports_of(config);
  EXPECT_EQ(reports.back().consumed_samples, 150);
  EXPECT_LT(reports.back().samples, sizes.at(reports[reports.size() - 2].consumed_samples).size);
}

// The decay of the last step is the one that is reported: a run with that constant decay makes the same last step.
TEST(WeightDecayRamp, ActsInTheStepThatReportsIt) {
  PretrainConfig config = small_run();
  config.optimizer.weight_decay_incr_style = WeightDecayStyle::Linear;
  config.optimizer.start_weight_decay = 0.0;
  config.optimizer.end_weight_decay = 8.0;
  config.optimizer.clip_grad = 0;
  const std::vector<StepReport> reports = reports_of(config);
  for (size_t i = 0; i < reports.size(); ++i)
    EXPECT_DOUBLE_EQ(*reports[i].weight_decay, 8.0 * static_cast<double>(i) / 20);
  const TempDir folder;
  train(config, 18, "", folder.path().string());
  PretrainConfig constant = config;
  constant.optimizer.weight_decay_incr_style = WeightDecayStyle::Constant;
  constant.optimizer.weight_decay = 8.0 * 18 / 20;
  const Curve ramp = train(config, 0, folder.path().string()),
              same = train(constant, 0, folder.path().string());
  // The loss of step 20 is the first that the update of step 19 changes.
  ASSERT_EQ(ramp.losses.size(), 2U);
  EXPECT_EQ(ramp.losses[1], same.losses[1]);
  constant.optimizer.weight_decay = 0;
  EXPECT_NE(ramp.losses[1], train(constant, 0, folder.path().string()).losses[1]);
}

TEST(WeightDecayRamp, IsTheSameOnEveryMesh) {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;
  config.optimizer.weight_decay_incr_style = WeightDecayStyle::Cosine;
  config.optimizer.start_weight_decay = 0.1;
  config.optimizer.end_weight_decay = 3.0;
  const Curve one = train(config);
  for (const int stage : {1, 3}) {
    PretrainConfig mesh = on_mesh(config, 2, 2);
    mesh.zero.zero_stage = stage;
    const Curve other = train(mesh);
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_LT(relative_error(other.losses[i], one.losses[i]), 1e-11) << i;
  }
  // --weight-decay has no effect, also on which parameters are updated together.
  config.optimizer.weight_decay = 0;
  const Curve same = train(config);
  EXPECT_EQ(first_difference(std::span<const double>(one.losses), std::span<const double>(same.losses)),
            kSame);
}

}  // namespace
}  // namespace trifold::test
