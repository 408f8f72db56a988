// The sizes of batches that grow: against Megatron-LM's formula, step by step.
#include "config/fields/batch_sizes.h"

#include <gtest/gtest.h>

#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

// The size by the formula of batch_sizes.h, in exact arithmetic.
int64_t by_formula(const BatchRamp& ramp, int64_t full, int64_t consumed) {
  const int64_t n = (full - ramp.start) / ramp.increment;
  return consumed >= ramp.samples ? full : ramp.start + consumed * n / ramp.samples * ramp.increment;
}

struct RampCase {
  BatchRamp ramp;
  int64_t full;
};

constexpr RampCase kRamps[] = {
    {{16, 16, 5'859'375}, 1536},  // GPT-3 175B of Megatron-LM
    {{4, 2, 100}, 16},
    {{8, 8, 1000}, 64},
    {{1, 1, 37}, 5},
    {{2, 6, 10}, 32},
    {{1, 1, 3}, 9},  // less than a step per increment: sizes are left out
};

TEST(BatchSizes, FollowTheFormulaStepByStep) {
  for (const RampCase& test : kRamps) {
    const BatchSizes sizes(test.ramp, test.full);
    int64_t consumed = 0, step = 0;
    for (const StepsOfSize& some : sizes.sizes_of())
      for (int64_t i = 0; i < std::min<int64_t>(some.steps, 20); ++i) {
        // Within a long run of equal steps, only its ends are looked at.
        if (some.steps != StepsOfSize::kEndless && some.steps > 20 && i == 10) {
          const int64_t left_out = some.steps - 20;
          ASSERT_EQ(by_formula(test.ramp, test.full, consumed + left_out * some.size), some.size);
          consumed += left_out * some.size;
          step += left_out;
        }
        ASSERT_EQ(some.size, by_formula(test.ramp, test.full, consumed))
            << test.full << " after " << consumed;
        ASSERT_EQ(sizes.at(consumed).size, some.size);
        ASSERT_EQ(sizes.samples_of(step), consumed);
        consumed += some.size;
        ++step;
      }
  }
}

TEST(BatchSizes, CountStepsOfALength) {
  const BatchSizes sizes(BatchRamp{4, 2, 100}, 16);
  for (int64_t samples = 0; samples < 300; ++samples) {
    int64_t whole = 0, consumed = 0;
    while (consumed + sizes.at(consumed).size <= samples) {
      consumed += sizes.at(consumed).size;
      ++whole;
    }
    EXPECT_EQ(sizes.whole_steps(samples), whole) << samples;
    EXPECT_EQ(sizes.steps_to(samples), consumed == samples ? whole : whole + 1) << samples;
    EXPECT_EQ(sizes.samples_of(whole), consumed);
    if (whole > 3) {
      const int64_t three = sizes.samples_of(3);
      EXPECT_EQ(sizes.whole_steps(samples, three), whole - 3);
      EXPECT_EQ(sizes.samples_of(whole - 3, three), consumed - three);
    }
  }
}

TEST(BatchSizes, OfOneSize) {
  const BatchSizes sizes(8);
  EXPECT_FALSE(sizes.grows());
  EXPECT_EQ(sizes.at(1000).size, 8);
  EXPECT_EQ(sizes.samples_of(5), 40);
  EXPECT_EQ(sizes.whole_steps(23), 2);
  EXPECT_EQ(sizes.steps_to(23), 3);
  ASSERT_EQ(sizes.sizes_of(7).size(), 1U);
  EXPECT_EQ(sizes.sizes_of(7)[0].steps, 7);
}

void set_ramp(PretrainConfig& config, int64_t start, int64_t increment, int64_t samples, int64_t full = 16) {
  config.batch.rampup_batch_size = {{start}, {increment}, {samples}};
  config.batch.global_batch_size = full;
}

TEST(BatchSizes, MistakesHaveReasons) {
  using C = PretrainConfig;
  expect_reported({
      {"--rampup-batch-size 4 4 100 needs --global-batch-size",
       [](C& c) { set_ramp(c, 4, 4, 100), c.batch.global_batch_size.reset(); }},
      {"--rampup-batch-size has 2 numbers: give three: START INCREMENT SAMPLES",
       [](C& c) { set_ramp(c, 4, 4, 100), c.batch.rampup_batch_size.pop_back(); }},
      {"--rampup-batch-size starts with 16, which is not below --global-batch-size 16",
       [](C& c) { set_ramp(c, 16, 4, 100); }},
      {"the increment 8 does not divide 12, the difference between --global-batch-size 16 and 4: 8 and 16 are",
       [](C& c) { set_ramp(c, 4, 8, 100); }},
      {"--rampup-batch-size: 4, 12 of the sizes 4, 8, 12, 16 are not divisible by --micro-batch-size 4 x data "
       "parallel size 2 = 8",
       [](C& c) { set_ramp(c, 4, 4, 100), c.mesh.ranks = 2; }},
      {"--rampup-batch-size 4 4 100 is not possible with --lr-warmup-iters 3",
       [](C& c) { set_ramp(c, 4, 4, 100), c.lr.lr_warmup_iters = 3; }},
      {"--lr-warmup-samples 5000 is not below the 1448 samples after which the decay ends",
       [](C& c) { set_ramp(c, 4, 4, 100), c.lr.lr_warmup_samples = 5000; }},
      {"needs at least 2 micro-batches a step, but the first batch of --rampup-batch-size",
       [](C& c) {
         set_ramp(c, 4, 4, 100), c.mesh.ranks = c.mesh.pipeline_model_parallel_size = 2;
         c.pipeline.schedule = ScheduleChoice::parse("pipedream-2bw");
         c.optimizer.clip_grad = 0;
       }},
  });
}

TEST(BatchSizes, ALengthInSamplesIsResolvedWithTheRamp) {
  PretrainConfig config = sound();
  set_ramp(config, 4, 4, 100);
  config.batch.train_iters = 0;
  config.batch.train_samples = 500;
  config.lr.lr_warmup_samples = 50;
  const PretrainConfig resolved = resolve(config);
  const BatchSizes sizes(BatchRamp{4, 4, 100}, 16);
  EXPECT_EQ(resolved.batch.train_iters, sizes.whole_steps(500));
  EXPECT_FALSE(resolved.batch.train_samples);
  EXPECT_EQ(resolved.lr.lr_warmup_samples, 50);
  EXPECT_EQ(resolved.lr.lr_decay_samples, sizes.samples_of(resolved.batch.train_iters));
  EXPECT_EQ(resolve(resolved).batch.train_iters, resolved.batch.train_iters);
}

TEST(WeightDecayRamp, MistakesHaveReasons) {
  using C = PretrainConfig;
  const auto ramp = [](C& c) {
    c.optimizer.weight_decay_incr_style = WeightDecayStyle::Linear;
    c.optimizer.start_weight_decay = 0.0;
    c.optimizer.end_weight_decay = 0.1;
  };
  expect_reported({
      {"--weight-decay-incr-style linear needs --end-weight-decay",
       [=](C& c) { ramp(c), c.optimizer.end_weight_decay.reset(); }},
      {"--start-weight-decay 0.2 has no effect without --weight-decay-incr-style linear or cosine",
       [](C& c) { c.optimizer.start_weight_decay = 0.2; }},
      {"--start-weight-decay 0 is not possible with --optimizer lamb",
       [=](C& c) { ramp(c), c.optimizer.optimizer = OptimizerKind::Lamb; }},
  });
  expect_noted({{"--weight-decay 0.3 has no effect with --weight-decay-incr-style linear",
                 [=](C& c) { ramp(c), c.optimizer.weight_decay = 0.3; }}});
}

TEST(Width, MistakesHaveReasons) {
  using C = PretrainConfig;
  expect_reported({
      {"--mup-base-hidden-size 64 needs --optimizer adam",
       [](C& c) { c.model.mup_base_hidden_size = 64, c.optimizer.optimizer = OptimizerKind::Sgd; }},
      {"--mup-base-head-dim 16 needs --mup-base-hidden-size", [](C& c) { c.model.mup_base_head_dim = 16; }},
  });
}

}  // namespace
}  // namespace trifold
