#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/compare.h"
#include "support/golden.h"

namespace trifold {
namespace {

constexpr double kMax = 0.1;
constexpr double kMin = 0.001;
constexpr int64_t kWarmup = 100;
constexpr int64_t kDecay = 1000;
constexpr int64_t kWsdDecay = 300;
constexpr double kTolerance = 1e-12;

LrConfig config_of(LrDecayStyle style, WsdDecayStyle wsd = WsdDecayStyle::Exponential) {
  LrConfig config;
  config.lr = kMax;
  config.min_lr = kMin;
  config.lr_decay_style = style;
  config.lr_decay_iters = kDecay;
  config.lr_warmup_iters = kWarmup;
  config.lr_wsd_decay_style = wsd;
  if (style == LrDecayStyle::Wsd) config.lr_wsd_decay_iters = kWsdDecay;
  return config;
}

struct Style {
  std::string name;
  LrConfig config;
  // The rate of step k, for k in [kWarmup, kDecay], written from the definition in iterations (not in
  // samples).
  std::function<double(double k)> closed_form;
};

double shared(double k) { return (k - kWarmup) / (kDecay - kWarmup); }
double between(double factor) { return kMin + (kMax - kMin) * factor; }

std::function<double(double)> wsd(std::function<double(double)> factor) {
  return [factor](double k) {
    const double r = (k - (kDecay - kWsdDecay)) / kWsdDecay;
    return r <= 0 ? kMax : between(factor(r));
  };
}

std::vector<Style> styles() {
  using enum LrDecayStyle;
  return {
      {"constant", config_of(Constant), [](double) { return kMax; }},
      {"linear", config_of(Linear), [](double k) { return between(1 - shared(k)); }},
      {"cosine", config_of(Cosine),
       [](double k) { return between(0.5 * (1 + std::cos(std::numbers::pi * shared(k)))); }},
      {"polynomial", config_of(Polynomial), [](double k) { return between(std::sqrt(1 - shared(k))); }},
      {"inverse square root", config_of(InverseSquareRoot),
       [](double k) { return std::max(kMin, kMax * std::sqrt(double{kWarmup}) / std::sqrt(k)); }},
      {"WSD exponential", config_of(Wsd, WsdDecayStyle::Exponential),
       wsd([](double r) { return 2 * std::exp2(-r) - 1; })},
      {"WSD linear", config_of(Wsd, WsdDecayStyle::Linear), wsd([](double r) { return 1 - r; })},
      {"WSD cosine", config_of(Wsd, WsdDecayStyle::Cosine),
       wsd([](double r) { return 0.5 * (1 + std::cos(std::numbers::pi * r)); })},
      {"WSD minus square root", config_of(Wsd, WsdDecayStyle::MinusSqrt),
       wsd([](double r) { return 1 - std::sqrt(r); })},
  };
}

TEST(LrSchedule, EveryStyleHasItsClosedFormAtAnyBatchSize) {
  for (const Style& style : styles())
    for (int64_t batch : {int64_t{1}, int64_t{12}, int64_t{1} << 20}) {
      SCOPED_TRACE(style.name + ", batch " + std::to_string(batch));
      const LrSchedule schedule(style.config, batch, 5000);
      for (int64_t k = 0; k <= kWarmup; ++k)
        EXPECT_LE(std::abs(schedule.at(k) - kMax * static_cast<double>(k) / kWarmup), kTolerance * kMax);
      for (int64_t k = kWarmup; k <= kDecay; ++k)
        ASSERT_LE(test::relative_error(schedule.at(k), style.closed_form(static_cast<double>(k))), kTolerance)
            << "step " << k;
      const double after = style.name == "constant" ? kMax : kMin;
      for (int64_t k : {kDecay + 1, kDecay + 1000, int64_t{1} << 40}) EXPECT_EQ(schedule.at(k), after);
    }
}

TEST(LrSchedule, KnownValues) {
  const LrSchedule cosine(config_of(LrDecayStyle::Cosine), 32, 1000);
  EXPECT_EQ(cosine.at(0), 0.0);
  EXPECT_DOUBLE_EQ(cosine.at(50), 0.05);
  EXPECT_EQ(cosine.at(100), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(550), 0.0505);  // half way
  EXPECT_DOUBLE_EQ(cosine.at(1000), 0.001);
  const LrSchedule root(config_of(LrDecayStyle::InverseSquareRoot), 32, 1000);
  EXPECT_DOUBLE_EQ(root.at(400), 0.05);
  const LrSchedule exponential(config_of(LrDecayStyle::Wsd), 32, 1000);
  EXPECT_EQ(exponential.at(700), 0.1);
  EXPECT_DOUBLE_EQ(exponential.at(850), 0.001 + 0.099 * (std::numbers::sqrt2 - 1));
}

// No style jumps before the end of its decay: between neighbouring steps it changes by no more than its
// slope.
TEST(LrSchedule, IsContinuousAndEndsAtTheMinimum) {
  for (const Style& style : styles()) {
    SCOPED_TRACE(style.name);
    const LrSchedule schedule(style.config, 4, kDecay);
    for (int64_t k = 0; k < kDecay; ++k) {
      const double change = schedule.at(k + 1) - schedule.at(k);
      EXPECT_TRUE(k < kWarmup ? change > 0 : change <= 0) << "step " << k;
      // sqrt is steep where the WSD decay begins and the polynomial one ends; everything else is gentler than
      // the warm-up.
      const bool steep =
          (style.name == "WSD minus square root" || style.name == "polynomial") && k >= kDecay - kWsdDecay;
      EXPECT_LE(std::abs(change), steep ? kMax / std::sqrt(double{kWsdDecay}) : kMax / kWarmup * 1.001);
    }
    const bool falls = style.name != "constant" && style.name != "inverse square root";
    EXPECT_TRUE(!falls || std::abs(schedule.at(kDecay) - kMin) < 1e-15) << schedule.at(kDecay);
  }
}

TEST(LrSchedule, InverseSquareRootHasAFloorAndCountsSamplesWithoutWarmUp) {
  LrConfig config = config_of(LrDecayStyle::InverseSquareRoot);
  config.min_lr = 0.05;
  EXPECT_EQ(LrSchedule(config, 8, kDecay).at(900), 0.05);
  config.min_lr = 0;
  config.lr_warmup_iters = 0;
  EXPECT_EQ(LrSchedule(config, 25, kDecay).at(0), kMax);
  EXPECT_DOUBLE_EQ(LrSchedule(config, 25, kDecay).at(4), kMax / 10);
}

TEST(LrSchedule, WarmUpStartsAtItsInitialValueAndMayBeAFraction) {
  LrConfig config = config_of(LrDecayStyle::Linear);
  config.lr_warmup_init = 0.02;
  const LrSchedule from_init(config, 4, kDecay);
  EXPECT_EQ(from_init.at(0), 0.02);
  EXPECT_DOUBLE_EQ(from_init.at(25), 0.04);
  config.lr_warmup_iters = 0;
  EXPECT_EQ(LrSchedule(config, 4, kDecay).at(0), kMax) << "without warm-up its initial value is not used";

  config.lr_warmup_fraction = 0.1;
  for (int64_t k = 0; k <= kDecay; ++k)
    ASSERT_LE(test::relative_error(LrSchedule(config, 4, kDecay).at(k), from_init.at(k)), kTolerance);
}

TEST(LrSchedule, DecayLastsAsLongAsTheRunUnlessGiven) {
  LrConfig config = config_of(LrDecayStyle::Linear);
  config.lr_decay_iters.reset();
  EXPECT_DOUBLE_EQ(learning_rate(config, 4, 300, 200), between(0.5));
  EXPECT_NEAR(learning_rate(config, 4, 300, 300), kMin, 1e-15);
}

TEST(LrSchedule, WsdWithoutADecayStaysAtTheTopToTheEnd) {
  LrConfig config = config_of(LrDecayStyle::Wsd);
  config.lr_wsd_decay_iters = 0;
  EXPECT_EQ(LrSchedule(config, 4, kDecay).at(kDecay), kMax);
  EXPECT_EQ(LrSchedule(config, 4, kDecay).at(kDecay + 1), kMin);
}

TEST(LrSchedule, EqualsTheScheduleOfTheGoldenRun) {
  const test::GoldenGptConfig golden = test::load_golden_gpt().config;
  LrConfig config;
  config.lr = golden.lr;
  config.min_lr = golden.min_lr;
  config.lr_decay_style = LrDecayStyle::Cosine;
  config.lr_decay_iters = golden.lr_decay_iters;
  config.lr_warmup_iters = golden.lr_warmup_iters;
  config.lr_warmup_init = golden.lr_warmup_init;
  const LrSchedule schedule(config, golden.global_batch_size, golden.train_iters);
  const std::vector<double> rates = test::load_golden_gpt().learning_rates;
  ASSERT_EQ(rates.size(), 10U);
  for (size_t k = 0; k < rates.size(); ++k)
    EXPECT_LE(test::relative_error(schedule.at(static_cast<int64_t>(k)), rates[k]), kTolerance)
        << "step " << k;
}

// Changes one value of a good configuration and expects a message that names `option`, as a user's mistake.
void expect_refused(const std::function<void(LrConfig&)>& spoil, const std::string& option,
                    LrDecayStyle style = LrDecayStyle::Linear) {
  LrConfig config = config_of(style);
  spoil(config);
  try {
    const LrSchedule schedule(config, 4, kDecay);
    ADD_FAILURE() << "accepted a bad " << option;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(std::string(error.what()).find(option), std::string::npos) << error.what();
  }
}

TEST(LrSchedule, RejectsInvalidSchedules) {
  expect_refused([](LrConfig& c) { c.lr = -1; }, "--lr");
  expect_refused([](LrConfig& c) { c.lr = std::nan(""); }, "--lr");
  expect_refused([](LrConfig& c) { c.min_lr = 1; }, "--min-lr");
  expect_refused([](LrConfig& c) { c.lr_warmup_init = 1; }, "--lr-warmup-init");
  expect_refused([](LrConfig& c) { c.lr_warmup_iters = -1; }, "--lr-warmup-iters");
  expect_refused([](LrConfig& c) { c.lr_warmup_iters = kDecay; }, "--lr-warmup-iters");
  expect_refused([](LrConfig& c) { c.lr_warmup_fraction = 1.0; }, "--lr-warmup-fraction");
  expect_refused([](LrConfig& c) { c.lr_warmup_fraction = 0.1; }, "exclude each other");
  expect_refused([](LrConfig& c) { c.lr_decay_iters = 0; }, "--lr-decay-iters");
  expect_refused([](LrConfig& c) { c.lr_wsd_decay_iters.reset(); }, "--lr-wsd-decay-iters",
                 LrDecayStyle::Wsd);
  expect_refused([](LrConfig& c) { c.lr_wsd_decay_iters = 901; }, "--lr-wsd-decay-iters", LrDecayStyle::Wsd);
  EXPECT_THROW(LrSchedule(config_of(LrDecayStyle::Linear), 0, kDecay), Error);
  EXPECT_THROW(LrSchedule(config_of(LrDecayStyle::Linear), 4, kDecay).at(-1), Error);
}

// The rates of MLPerf's recommenders at the convergence point for batches of 32768; steps count from 1.
LrConfig parabola(double lr, int64_t warmup, int64_t start, int64_t steps) {
  LrConfig config;
  config.lr = lr;
  config.lr_decay_style = LrDecayStyle::Parabola;
  config.lr_warmup_iters = warmup;
  config.lr_decay_start = start;
  config.lr_decay_iters = steps;
  return config;
}

double rate_of_step(const LrConfig& config, int64_t step) {
  return learning_rate(config, 32'768, 100, step - 1);
}

TEST(Parabola, RisesInALineAndStays) {
  const LrConfig mlperf = parabola(18, 8000, 70'000, 30'000);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 1), 18.0 / 8000);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 4000), 9);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 7999), 18.0 * 7999 / 8000);
  for (const int64_t step : {8000, 69'999, 70'000}) EXPECT_DOUBLE_EQ(rate_of_step(mlperf, step), 18);
}

TEST(Parabola, FallsToAFloorAndStaysThere) {
  LrConfig mlperf = parabola(18, 8000, 70'000, 30'000);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 85'000), 18.0 / 4);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 97'000), 18.0 / 100);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 100'000), 1e-7);
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 10'000'000), 1e-7);
  EXPECT_DOUBLE_EQ(rate_of_step(parabola(1e-9, 8000, 70'000, 30'000), 100'000), 1e-9);  // it lifts no rate
  mlperf.min_lr = 0.5;
  EXPECT_DOUBLE_EQ(rate_of_step(mlperf, 99'999), 0.5);
}

TEST(Parabola, WithoutAFallItIsConstant) {
  for (const int64_t step : {1, 2, 1000}) EXPECT_DOUBLE_EQ(rate_of_step(parabola(0.1, 0, 0, 0), step), 0.1);
  EXPECT_DOUBLE_EQ(rate_of_step(parabola(0.1, 4, 0, 0), 100), 0.1);
  EXPECT_DOUBLE_EQ(rate_of_step(parabola(1, 0, 2, 4), 4), 0.25);  // without warm-up
}

}  // namespace
}  // namespace trifold
