// The exponential average of the weights (--ema): its values, the same bits on every mesh that gives the same bits
// otherwise, the planned memory, and exact resume.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "checkpoint/reader.h"
#include "parity/zero_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

constexpr double kDecay = 0.9;

PretrainConfig averaged(PretrainConfig config) {
  config.optimizer.ema = kDecay;
  return config;
}

class Average : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("trifold_average_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

using Values = std::map<std::string, std::vector<float>>;

// All weights, or their averages, of the newest checkpoint in a folder.
Values weights_in(const std::string& folder, bool averages) {
  CheckpointReader reader(folder);
  if (averages) reader = reader.with_averages();
  Values values;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("param/")) continue;
    std::vector<float>& into = values[tensor.name];
    into.resize(static_cast<size_t>(tensor.global.elements()));
    NamedTensor wanted;
    wanted.spec.name = tensor.name;
    wanted.spec.global = tensor.global;
    wanted.spec.local = Rect::whole(tensor.global);
    wanted.data = {into.data(), DType::F32, tensor.global};
    reader.load({&wanted, 1}, FloatConversion::Allow);
  }
  return values;
}

// A run of three steps, saved after each.
TEST_F(Average, IsTheDecayingMeanOfTheWeights) {
  PretrainConfig config = averaged(zero_run({"1f1b", 2, 1, 1, 1, false}, 1));
  config.precision.bf16 = true;
  std::vector<Values> weights;
  PretrainConfig slow = config;
  slow.lr.lr = slow.lr.min_lr = slow.lr.lr_warmup_init = 1e-30;
  train(slow, 1, "", at("start"));  // the initial weights
  weights.push_back(weights_in(at("start"), false));
  for (const int step : {1, 2, 3}) {
    train(config, step, "", at(std::to_string(step)));
    weights.push_back(weights_in(at(std::to_string(step)), false));
  }
  Values expected = weights[0];
  for (size_t step = 1; step < weights.size(); ++step)
    for (auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(kDecay * values[i] + (1 - kDecay) * weights[step].at(name)[i]);
  const Values found = weights_in(at("3"), true);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) EXPECT_LT(relative_error(found.at(name), values), 1e-6) << name;
}

TEST_F(Average, HasTheSameBitsOnEveryCut) {
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 2, 1, 1, 1, false}, ZeroCase{"1f1b", 2, 1, 2, 1, false}})
    for (const int stage : {0, 1, 3})
      train(averaged(zero_run(mesh, stage)), 5, "", at(fmt::format("pp{}_{}", mesh.pp, stage)));
  const Values plain = weights_in(at("pp1_0"), true);
  EXPECT_NE(plain, weights_in(at("pp1_0"), false));
  for (const char* other : {"pp1_1", "pp1_3", "pp2_0", "pp2_1", "pp2_3"})
    EXPECT_EQ(weights_in(at(other), true), plain) << other;
}

TEST_F(Average, IsResumedBitwise) {
  const PretrainConfig config = averaged(zero_run({"1f1b", 2, 2, 1, 1, true}, 1));
  train(config, 0, "", at("whole"));
  train(config, 10, "", at("half"));
  train(config, 0, at("half"), at("rest"));
  EXPECT_EQ(weights_in(at("rest"), true), weights_in(at("whole"), true));
  EXPECT_EQ(weights_in(at("rest"), false), weights_in(at("whole"), false));
}

TEST_F(Average, ChangesNoWeightAndBeginsAnewWithoutOne) {
  const PretrainConfig config = zero_run({"1f1b", 2, 1, 1, 1, false}, 1);
  train(config, 10, "", at("without"));
  train(averaged(config), 10, "", at("with"));
  EXPECT_EQ(weights_in(at("with"), false), weights_in(at("without"), false));
  EXPECT_THROW(weights_in(at("without"), true), Error);
  PretrainConfig still = averaged(config);
  still.lr.lr = still.lr.min_lr = 1e-30;
  still.optimizer.weight_decay = 0;
  train(still, 11, at("without"), at("after"));
  const Values weights = weights_in(at("after"), false), averages = weights_in(at("after"), true);
  for (const auto& [name, values] : weights)
    EXPECT_LT(relative_error(averages.at(name), values), 1e-6) << name;
}

TEST_F(Average, HasThePlannedMemory) {
  for (const int stage : {0, 1, 3})
    compare_with_plan(averaged(zero_run({"1f1b", 2, 2, 1, 1, true}, stage)), expect_planned_memory);
}

}  // namespace
}  // namespace trifold::test
