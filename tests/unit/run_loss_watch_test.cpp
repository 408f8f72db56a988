// Spikes of the loss, and steps that are skipped.
#include "run/health/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace trifold::test {
namespace {

WatchConfig watching(double factor = 10) {
  WatchConfig config;
  config.on_loss_spike = OnLossSpike::Rollback;
  config.loss_spike_factor = factor;
  return config;
}

// Losses near 3 with a spread of about 0.1.
double usual_loss(int64_t step) { return 3 + 0.1 * std::sin(static_cast<double>(step * step)); }

LossWatch after_steps(const WatchConfig& config, int64_t steps) {
  LossWatch watch(config);
  for (int64_t step = 1; step <= steps; ++step) {
    watch.add(step, usual_loss(step));
    EXPECT_FALSE(watch.take_spike()) << step;
  }
  return watch;
}

TEST(LossWatch, FindsASpike) {
  LossWatch watch = after_steps(watching(), 100);
  watch.add(101, 6);
  const auto spike = watch.take_spike();
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->step, 101);
  EXPECT_EQ(spike->loss, 6);
  EXPECT_NEAR(spike->usual, 3, 0.1);
  EXPECT_NEAR(spike->spread, 0.1, 0.05);
  EXPECT_FALSE(watch.take_spike());  // only once
  watch.add(102, 6);                 // the spike does not count among the usual losses
  EXPECT_TRUE(watch.take_spike());
}

TEST(LossWatch, AFallOfTheLossIsNoSpike) {
  LossWatch watch = after_steps(watching(), 100);
  watch.add(101, 0.1);
  EXPECT_FALSE(watch.take_spike());
}

TEST(LossWatch, NeedsLossesToCompareWith) {
  LossWatch watch = after_steps(watching(), LossWatch::kFewest - 1);
  watch.add(1000, 1e6);
  EXPECT_FALSE(watch.take_spike());
}

TEST(LossWatch, ALossThatIsNotFiniteIsForOthers) {
  LossWatch watch = after_steps(watching(), 50);
  watch.add(51, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(watch.take_spike());
}

TEST(LossWatch, ConstantLossesHaveASmallSpread) {
  LossWatch watch(watching());
  for (int64_t step = 1; step <= 50; ++step) watch.add(step, 2);
  watch.add(51, 2.019);
  EXPECT_FALSE(watch.take_spike());
  watch.add(52, 2.021);
  EXPECT_TRUE(watch.take_spike());
}

TEST(LossWatch, IgnoresSpikesUnlessAskedFor) {
  LossWatch watch = after_steps({}, 50);
  watch.add(51, 100);
  EXPECT_FALSE(watch.take_spike());
}

TEST(LossWatch, SkipsStepsOfTheOptionAndOfRollbacks) {
  WatchConfig config = watching();
  config.iterations_to_skip = {{3}, {7}};
  LossWatch watch(config);
  watch.skip(10, 12);
  for (int64_t step = 1; step < 20; ++step)
    EXPECT_EQ(watch.skips(step), step == 3 || step == 7 || (step >= 10 && step <= 12)) << step;
  EXPECT_EQ(watch.times_skipped_after(9), 1);
  EXPECT_EQ(watch.times_skipped_after(12), 0);
  LossWatch loaded(config);
  loaded.keep_skipped(watch);
  loaded.keep_skipped(watch);
  EXPECT_TRUE(loaded.skips(11));
  EXPECT_EQ(loaded.times_skipped_after(1), 1);
}

// A restored watch decides like one that was never interrupted.
TEST(LossWatch, ItsStateIsWhole) {
  LossWatch whole = after_steps(watching(), 100);
  whole.skip(20, 30);
  const nlohmann::json state = nlohmann::json::parse(whole.state().dump());
  LossWatch restored(watching());
  restored.restore(JsonView(state, "state"));
  EXPECT_EQ(restored.state(), whole.state());
  EXPECT_TRUE(restored.skips(25));
  for (LossWatch* watch : {&whole, &restored}) watch->add(101, 4.2);
  const auto a = whole.take_spike(), b = restored.take_spike();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->usual, b->usual);
  EXPECT_EQ(a->spread, b->spread);
  for (const char* bad : {"{}", R"({"losses": 3, "skipped": []})", R"({"losses": ["x"], "skipped": []})",
                          R"({"losses": [], "skipped": [{"first": 0, "last": 2}]})"}) {
    const nlohmann::json value = nlohmann::json::parse(bad);
    EXPECT_THROW(restored.restore(JsonView(value, "state")), Error) << bad;
  }
  EXPECT_EQ(restored.state()["skipped"], whole.state()["skipped"]);
}

}  // namespace
}  // namespace trifold::test
