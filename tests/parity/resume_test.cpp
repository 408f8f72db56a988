// Stop anywhere, go on: the same losses to the last bit; on another mesh, the same within rounding.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("trifold_resume_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

void expect_second_half_bitwise(const Curve& whole, const Curve& second) {
  ASSERT_EQ(second.losses.size(), 10U);
  const auto half = [](const std::vector<double>& v) { return std::span<const double>(v).subspan(10); };
  EXPECT_EQ(first_difference(half(whole.losses), std::span<const double>(second.losses)), kSame);
  EXPECT_EQ(first_difference(half(whole.grad_norms), std::span<const double>(second.grad_norms)), kSame);
}

TEST_F(Resume, IsBitwiseExact) {
  for (int dp : {1, 2}) {
    PretrainConfig config = on_mesh(small_run(), dp);
    config.model.hidden_dropout = config.model.attention_dropout = 0.1;
    const std::string save = (folder_ / std::to_string(dp)).string();
    const Curve whole = train(config);
    train(config, 10, "", save);
    expect_second_half_bitwise(whole, train(config, 0, save));
  }
}

TEST_F(Resume, OnAnotherMeshAgreesWithinRounding) {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  const Curve whole = train(config);
  train(on_mesh(config, 2), 10, "", folder_.string());
  for (const auto& mesh : {on_mesh(config, 1), on_mesh(config, 4)}) {
    const Curve second = train(mesh, 0, folder_.string());
    ASSERT_EQ(second.losses.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_LT(relative_error(second.losses[i], whole.losses[i + 10]), 1e-11);
  }
}

TEST_F(Resume, RefusesAnotherModelFieldByField) {
  PretrainConfig config = small_run();
  train(config, 1, "", folder_.string());
  config.model.num_layers = 3;
  config.model.ffn_hidden_size = 64;
  try {
    train(config, 2, folder_.string());
    FAIL() << "a checkpoint of another model was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    const std::string text = error.what();
    EXPECT_NE(text.find("num_layers"), std::string::npos) << text;
    EXPECT_NE(text.find("ffn_hidden_size"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trifold::test
