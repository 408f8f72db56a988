// Weight decays that change: closed forms of Megatron-LM's styles.
#include "optim/weight_decay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace trifold {
namespace {

OptimizerConfig decaying(WeightDecayStyle style) {
  OptimizerConfig config;
  config.weight_decay = 0.3;
  config.weight_decay_incr_style = style;
  config.start_weight_decay = 0.033;
  config.end_weight_decay = 0.1;
  return config;
}

TEST(WeightDecay, IsConstantByDefault) {
  EXPECT_FALSE(weight_decay_changes(OptimizerConfig()));
  EXPECT_EQ(weight_decay_after(OptimizerConfig(), 7, 100), 0.01);
}

TEST(WeightDecay, HasMegatronsValues) {
  constexpr int64_t kAll = 800;
  const OptimizerConfig linear = decaying(WeightDecayStyle::Linear),
                        cosine = decaying(WeightDecayStyle::Cosine);
  EXPECT_TRUE(weight_decay_changes(linear));
  for (int64_t n = 0; n <= kAll; n += 8) {
    const double r = static_cast<double>(n) / kAll;
    EXPECT_DOUBLE_EQ(weight_decay_after(linear, n, kAll), 0.033 + 0.067 * r);
    EXPECT_NEAR(weight_decay_after(cosine, n, kAll), 0.1 - 0.067 * (1 + std::cos(std::numbers::pi * r)) / 2,
                1e-15);
  }
  for (const OptimizerConfig& config : {linear, cosine}) {
    EXPECT_EQ(weight_decay_after(config, 0, kAll), 0.033);
    EXPECT_DOUBLE_EQ(weight_decay_after(config, kAll, kAll), 0.1);
    EXPECT_EQ(weight_decay_after(config, kAll + 1, kAll), 0.1);
  }
  EXPECT_DOUBLE_EQ(weight_decay_after(cosine, kAll / 2, kAll), (0.033 + 0.1) / 2);
}

}  // namespace
}  // namespace trifold
