#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"

namespace trifold {
namespace {

PrecisionConfig fp16(double initial, double least, int64_t window, int64_t hysteresis) {
  PrecisionConfig config;
  config.fp16 = true;
  config.initial_loss_scale = initial;
  config.min_loss_scale = least;
  config.loss_scale_window = window;
  config.hysteresis = hysteresis;
  return config;
}

// One letter a step: '.' fine, 'x' overflow. Returns the scale after the last.
double after(LossScaler& scaler, const std::string& steps) {
  for (char step : steps) scaler.update(step == 'x');
  return scaler.scale();
}

TEST(LossScaler, HasMegatronsDefaults) {
  PrecisionConfig config;
  config.fp16 = true;
  LossScaler scaler(config);
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_EQ(scaler.scale(), std::ldexp(1.0, 32));
  EXPECT_EQ(after(scaler, "x"), std::ldexp(1.0, 32)) << "the first overflow only uses up hysteresis";
  EXPECT_EQ(after(scaler, "x"), std::ldexp(1.0, 31));
  EXPECT_EQ(after(scaler, "x"), std::ldexp(1.0, 30)) << "from then on each halves";
  EXPECT_EQ(after(scaler, std::string(999, '.')), std::ldexp(1.0, 30));
  EXPECT_EQ(after(scaler, "."), std::ldexp(1.0, 31));
}

TEST(LossScaler, GrowthRestoresTheHysteresisAndOverflowsRestartTheWindow) {
  LossScaler scaler(fp16(64, 1, 3, 2));
  EXPECT_EQ(after(scaler, "..x.."), 64) << "the window began again";
  EXPECT_EQ(after(scaler, "."), 128);
  EXPECT_EQ(after(scaler, "x"), 128) << "two overflows are left again";
  EXPECT_EQ(after(scaler, "..x"), 64) << "fine steps short of the window do not restore any";
  EXPECT_EQ(after(scaler, "..."), 128);
}

TEST(LossScaler, NeverFallsBelowTheLeast) {
  LossScaler scaler(fp16(12, 4, 2, 1));
  EXPECT_FALSE(scaler.at_least_scale());
  EXPECT_EQ(after(scaler, "x"), 6);
  EXPECT_EQ(after(scaler, "x"), 4);
  EXPECT_TRUE(scaler.at_least_scale());
  EXPECT_EQ(after(scaler, "xxx"), 4);
  EXPECT_EQ(after(scaler, ".."), 8);
}

TEST(LossScaler, FixedScalesStay) {
  PrecisionConfig config;
  LossScaler f32(config);
  EXPECT_EQ(after(f32, "xxxx...."), 1);
  config.bf16 = true;
  EXPECT_EQ(LossScaler(config).scale(), 1);
  EXPECT_FALSE(LossScaler(config).dynamic());
  config.bf16 = false;
  config.fp16 = true;
  config.loss_scale = 512;
  config.loss_scale_window = 1;
  LossScaler fixed(config);
  EXPECT_FALSE(fixed.dynamic());
  EXPECT_EQ(after(fixed, "xxxx...."), 512);
  fixed.restore({64, 0, 1});
  EXPECT_EQ(fixed.scale(), 512);
}

TEST(LossScaler, GoesOnFromItsState) {
  const PrecisionConfig config = fp16(1024, 1, 4, 3);
  LossScaler whole(config);
  LossScaler first(config);
  const std::string steps = "..x.x..x....xx......x.xxx....";
  for (size_t cut = 0; cut < steps.size(); ++cut) {
    LossScaler second(config);
    second.restore(first.state());
    EXPECT_EQ(after(second, steps.substr(cut)), [&] {
      LossScaler all(config);
      return after(all, steps);
    }());
    first.update(steps[cut] == 'x');
    whole.update(steps[cut] == 'x');
    EXPECT_EQ(first.state(), whole.state());
  }
  EXPECT_THROW(first.restore({0, 0, 1}), Error);
  EXPECT_THROW(first.restore({NAN, 0, 1}), Error);
  EXPECT_THROW(first.restore({1, -1, 1}), Error);
}

}  // namespace
}  // namespace trifold
