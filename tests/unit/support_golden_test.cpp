#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "support/compare.h"

namespace trifold::test {
namespace {

TEST(Compare, RelativeErrorIsScaledByTheReference) {
  EXPECT_EQ(relative_error(std::vector{1.0, 2.0, 5.0}, std::vector{1.0, 2.0, 4.0}), 0.25);
  EXPECT_EQ(relative_error(std::vector{1.0F, -8.0F}, std::vector{2.0, -8.0}), 0.125);
  EXPECT_EQ(relative_error(std::vector{0.5}, std::vector{0.0}), 0.5) << "an all-zero reference";
  EXPECT_EQ(relative_error(std::vector<double>{}, std::vector<double>{}), 0);
  EXPECT_EQ(relative_error(3.0, 2.0), 0.5);
  EXPECT_THROW(relative_error(std::vector{1.0}, std::vector{1.0, 1.0}), std::invalid_argument);
}

TEST(Compare, ValuesThatAreNotFiniteNeverPass) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(relative_error(std::vector{1.0, nan}, std::vector{1.0, 1.0}), infinity);
  EXPECT_EQ(relative_error(std::vector{1.0, 1.0}, std::vector{nan, 1.0}), infinity);
  EXPECT_EQ(relative_error(std::vector{infinity}, std::vector{infinity}), infinity);
}

TEST(Compare, FirstDifferenceIsOfBits) {
  const std::vector<float> a{1.0F, 0.0F, std::nanf("")};
  std::vector<float> b = a;
  const auto difference = [&] {
    return first_difference(std::span<const float>(a), std::span<const float>(b));
  };
  EXPECT_EQ(difference(), kSame);
  b[1] = -0.0F;
  EXPECT_EQ(difference(), 1);
  b = {1.0F, 0.0F};
  EXPECT_EQ(difference(), 2);
  b = {std::nextafter(1.0F, 2.0F)};
  EXPECT_EQ(difference(), 0);
}

TEST(GoldenGpt, HoldsOneConsistentRun) {
  const GoldenGpt gpt = load_golden_gpt();
  const GoldenGptConfig& config = gpt.config;
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.padded_vocab_size, 64);
  EXPECT_EQ(gpt.parameters.size(), 2U + 12U * 2U + 2U);
  EXPECT_EQ(gpt.parameter("block.1.attention.qkv.weight").shape, (std::vector<int64_t>{3, 32, 32}));
  EXPECT_THROW(gpt.parameter("block.2.norm1.gain"), std::out_of_range);

  double squares = 0;
  for (const GoldenParameter& entry : gpt.parameters) {
    for (double g : entry.gradient) squares += g * g;
    for (double value : entry.initial) ASSERT_EQ(static_cast<double>(static_cast<float>(value)), value);
    EXPECT_EQ(entry.decayed, entry.name.ends_with(".weight")) << entry.name;
  }
  EXPECT_LE(relative_error(std::sqrt(squares), gpt.grad_norms.at(0)), 1e-12);

  const auto steps = static_cast<size_t>(config.train_iters);
  EXPECT_EQ(gpt.losses.size(), steps);
  EXPECT_EQ(gpt.grad_norms.size(), steps);
  ASSERT_EQ(gpt.tokens.size(), steps);
  for (const auto& step : gpt.tokens) {
    ASSERT_EQ(static_cast<int64_t>(step.size()), config.global_batch_size);
    for (const auto& sample : step) {
      ASSERT_EQ(static_cast<int64_t>(sample.size()), config.seq_length + 1);
      for (int32_t id : sample) ASSERT_TRUE(0 <= id && id < config.vocab_size);
    }
  }
}

// The rows of the padding and the key biases (a constant added to every score of a query) have no gradient: a
// golden file in which they had one would be wrong.
TEST(GoldenGpt, GradientsThatMustVanishDo) {
  const GoldenGpt gpt = load_golden_gpt();
  const std::vector<double>& table = gpt.parameter("embedding.tokens.weight").gradient;
  for (size_t i = 50 * 32; i < 64 * 32; ++i) ASSERT_EQ(table[i], 0.0);
  const std::vector<double>& bias = gpt.parameter("block.0.attention.qkv.bias").gradient;
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_GT(std::abs(bias[i]), 1e-7) << "query";
    EXPECT_LT(std::abs(bias[32 + i]), 1e-15) << "key";
    EXPECT_GT(std::abs(bias[64 + i]), 1e-7) << "value";
  }
}

TEST(GoldenLayers, HoldsEveryOperationWithFittingValues) {
  const auto cases = load_golden_layers();
  std::set<std::string> names;
  for (const auto& [name, tensors] : cases) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"adamw", "attention", "attention_grouped", "cross_entropy", "gelu",
                                          "layer_norm"}));

  const GoldenCase& gelu = cases.at("gelu");
  for (size_t i = 0; i < gelu.at("x").values.size(); ++i) {
    const double x = gelu.at("x").values[i];
    const double y = 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(gelu.at("y").values[i], y, 1e-14);
  }
  const GoldenCase& attention = cases.at("attention_grouped");
  EXPECT_EQ(attention.at("kv_heads").number(), 2);
  EXPECT_EQ(attention.at("qkv").shape, (std::vector<int64_t>{6, (4 + 2 * 2) * 4}));
  EXPECT_EQ(attention.at("lse").shape, (std::vector<int64_t>{1, 4, 6}));
}

}  // namespace
}  // namespace trifold::test
