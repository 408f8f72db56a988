// Moments of adam in bf16 and in 8 bits, rounded at random: the same bits on every mesh that gives the same bits
// otherwise, the planned memory, exact resume, and a curve beside that of moments in f32.
#include <gtest/gtest.h>

#include <filesystem>

#include "parity/zero_runs.h"
#include "support/files.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

class Moments : public ::testing::TestWithParam<MomentType> {
 protected:
  static PretrainConfig with_narrow_moments(PretrainConfig config) {
    config.optimizer.exp_avg_dtype = config.optimizer.exp_avg_sq_dtype = GetParam();
    return config;
  }
  static bool in_bf16() { return GetParam() == MomentType::Bf16; }
};

INSTANTIATE_TEST_SUITE_P(Types, Moments, ::testing::Values(MomentType::Bf16, MomentType::Fp8),
                         [](const auto& test) { return test.param == MomentType::Bf16 ? "Bf16" : "Fp8"; });

TEST_P(Moments, HaveTheBitsOfStageZero) {
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"1f1b", 2, 2, 1, 1, true}}) {
    const Curve plain = train(with_narrow_moments(zero_run(mesh, 0)));
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(stage);
      expect_same_bits(plain, train(with_narrow_moments(zero_run(mesh, stage))));
    }
  }
}

TEST_P(Moments, HaveTheBitsOfOneStageOnPipelines) {
  const Curve plain = train(with_narrow_moments(zero_run({"1f1b", 2, 1, 1, 1, false}, 1)));
  expect_same_bits(plain, train(with_narrow_moments(zero_run({"zb-h1", 2, 1, 2, 1, false}, 1))));
}

// Rounding of 2^-8 of a moment changes directions by less than a hundredth, and losses by less; rounding of an eighth is
// like noise in the gradients.
TEST_P(Moments, HaveACurveBesideThatOfF32) {
  const PretrainConfig config = zero_run({"1f1b", 1, 1, 1, 1, false}, 0);
  const Curve wide = train(config), narrow = train(with_narrow_moments(config));
  EXPECT_NE(wide.losses.back(), narrow.losses.back());
  for (size_t i = 0; i < wide.losses.size(); ++i)
    EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), in_bf16() ? 5e-3 : 3e-2) << "step " << i + 1;
}

TEST_P(Moments, HaveThePlannedMemory) {
  for (const int stage : {0, 1, 3})
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(fmt::format("stage {} bf16 {}", stage, bf16));
      PretrainConfig config = with_narrow_moments(zero_run({"1f1b", 2, 2, 1, 1, true}, stage));
      config.precision.bf16 = bf16;
      compare_with_plan(config, expect_planned_memory);
    }
}

TEST_P(Moments, ResumeBitwiseAndLoadMomentsOfF32) {
  const auto folder =
      std::filesystem::temp_directory_path() / (in_bf16() ? "trifold_bf16_moments" : "trifold_fp8_moments");
  std::filesystem::remove_all(folder);
  const PretrainConfig config = with_narrow_moments(zero_run({"1f1b", 2, 1, 1, 1, false}, 1));
  const Curve whole = train(config);
  train(config, 10, "", (folder / "narrow").string());
  const Curve second = train(config, 0, (folder / "narrow").string());
  ASSERT_EQ(second.losses.size(), 10U);
  EXPECT_EQ(first_difference(std::span<const double>(whole.losses).subspan(10),
                             std::span<const double>(second.losses)),
            kSame);
  train(zero_run({"1f1b", 2, 1, 1, 1, false}, 1), 10, "", (folder / "f32").string());
  if (in_bf16()) {
    const Curve other = train(config, 0, (folder / "f32").string());
    EXPECT_LT(relative_error(other.losses.back(), whole.losses.back()), 1e-2);
  } else {  // codes are no numbers that another type could be converted to
    const auto refusal = [&](const PretrainConfig& run, const char* from) {
      return error_of([&] { train(run, 0, (folder / from).string()); });
    };
    EXPECT_NE(refusal(config, "f32")
                  .find("has moments of more than 8 bits: resume with --exp-avg-dtype fp32 "
                        "--exp-avg-sq-dtype fp32, or begin them anew with --no-load-optim"),
              std::string::npos);
    PretrainConfig one = config;
    one.optimizer.exp_avg_dtype = MomentType::Fp32;
    EXPECT_NE(refusal(one, "narrow").find("has moments of 8 bits: resume with --exp-avg-dtype fp8, or"),
              std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trifold::test
