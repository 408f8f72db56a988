// ZeRO: sharding over data-parallel ranks changes no bit of the curve.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parity/zero_runs.h"

namespace trifold::test {
namespace {

std::string name_of(const ZeroCase& c) {
  std::string name = c.schedule + "_dp" + std::to_string(c.dp) + "tp" + std::to_string(c.tp) + "pp" +
                     std::to_string(c.pp) + (c.sequence_parallel ? "sp" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EveryStage : public ::testing::TestWithParam<ZeroCase> {};

TEST_P(EveryStage, GivesTheBitsOfStageZero) {
  const Curve plain = train(zero_run(GetParam(), 0));
  ASSERT_EQ(plain.losses.size(), 20U);
  EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
  for (int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_same_bits(plain, train(zero_run(GetParam(), stage)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EveryStage,
    ::testing::Values(ZeroCase{"1f1b", 2, 1, 1, 1, false}, ZeroCase{"1f1b", 8, 1, 1, 1, false},
                      ZeroCase{"1f1b", 4, 2, 1, 1, true}, ZeroCase{"1f1b", 4, 1, 2, 1, false},
                      ZeroCase{"zb-h1", 2, 2, 2, 1, true}, ZeroCase{"zb-v", 4, 1, 2, 2, false},
                      ZeroCase{"interleaved", 2, 1, 2, 2, false}, ZeroCase{"gpipe", 3, 1, 2, 1, false}),
    [](const auto& test) { return name_of(test.param); });

// Rules whose step needs norms of whole tensors: slices and stages on other ranks change no bit of a norm.
class EveryNorm : public ::testing::TestWithParam<OptimizerKind> {};

PretrainConfig norm_run(OptimizerKind kind, const ZeroCase& mesh, int stage) {
  PretrainConfig config = zero_run(mesh, stage);
  config.optimizer.optimizer = kind;
  config.lr.lr = config.lr.min_lr = kind == OptimizerKind::Lars ? 30 : 0.02;  // LARS: times an eta of 0.001
  return config;
}

TEST_P(EveryNorm, HasTheBitsOfStageZero) {
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"1f1b", 2, 2, 1, 1, true},
                               ZeroCase{"zb-h1", 2, 1, 2, 1, false}}) {
    SCOPED_TRACE(name_of(mesh));
    const Curve plain = train(norm_run(GetParam(), mesh, 0));
    ASSERT_EQ(plain.losses.size(), 20U);
    EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
    for (int stage : {1, 2, 3}) {
      SCOPED_TRACE(stage);
      expect_same_bits(plain, train(norm_run(GetParam(), mesh, stage)));
    }
  }
}

TEST_P(EveryNorm, HasTheBitsOfOneStageOnPipelines) {
  const Curve plain = train(norm_run(GetParam(), {"1f1b", 2, 1, 1, 1, false}, 1));
  for (const ZeroCase& mesh : {ZeroCase{"1f1b", 2, 1, 2, 1, false}, ZeroCase{"zb-h1", 2, 1, 4, 1, false}}) {
    SCOPED_TRACE(name_of(mesh));
    expect_same_bits(plain, train(norm_run(GetParam(), mesh, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryNorm, ::testing::Values(OptimizerKind::Lamb, OptimizerKind::Lars),
                         [](const auto& test) { return std::string(trifold::name_of(test.param)); });

class ReduceEach : public ::testing::TestWithParam<ZeroCase> {};

// With one micro-batch a step the two policies are one; with several only the order of sums differs.
TEST_P(ReduceEach, GivesTheCurveOfStageZero) {
  const ZeroCase& c = GetParam();
  for (const int micros : c.chunks == 1 ? std::vector<int>{1, 4} : std::vector<int>{4})
    for (const bool f64 : {false, true}) {
      SCOPED_TRACE(fmt::format("{} micro-batches, {}", micros, f64 ? "f64" : "f32"));
      const Curve plain = train(each_run(c, 0, micros, f64));
      ASSERT_EQ(plain.losses.size(), 20U);
      for (int stage : {2, 3}) {
        SCOPED_TRACE(stage);
        const Curve each = train(each_run(c, stage, micros, f64));
        ASSERT_EQ(each.losses.size(), 20U);
        if (micros == 1) expect_same_bits(plain, each);
        const double tolerance = f64 ? 1e-11 : 2e-5;
        for (size_t i = 0; i < 20; ++i) {
          EXPECT_LT(relative_error(each.losses[i], plain.losses[i]), tolerance) << "step " << i + 1;
          EXPECT_LT(relative_error(each.grad_norms[i], plain.grad_norms[i]), 20 * tolerance)
              << "step " << i + 1;
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReduceEach,
    ::testing::Values(ZeroCase{"1f1b", 2, 1, 1, 1, false}, ZeroCase{"1f1b", 4, 2, 1, 1, true},
                      ZeroCase{"1f1b", 2, 1, 4, 1, false}, ZeroCase{"gpipe", 2, 1, 2, 1, false},
                      ZeroCase{"interleaved", 2, 1, 2, 2, false}, ZeroCase{"zb-h1", 2, 2, 2, 1, true},
                      ZeroCase{"zb-v", 2, 1, 2, 2, false}, ZeroCase{"dualpipe-v", 2, 1, 2, 2, false}),
    [](const auto& test) { return name_of(test.param); });

// Groups of ranks that share slices, and sums between groups: another order of sums, so within rounding.
TEST(ZeroGroups, AgreeWithOneGroup) {
  for (int stage : {0, 1, 3}) {
    PretrainConfig config = zero_run({"1f1b", 4, 1, 1, 1, false}, stage, true);
    const Curve one = train(config);
    config.zero.zero_group_size = GroupSize{2};
    const Curve two = train(config);
    ASSERT_EQ(two.losses.size(), 20U);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(two.losses[i], one.losses[i]), 1e-11);
  }
}

// Between groups only the sums of a step travel; with one micro-batch that is what reducing once does.
TEST(ZeroGroups, ReduceAfterEachMicroBatchToo) {
  for (const ZeroCase& c : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"zb-h1", 4, 2, 1, 1, true}})
    for (int micros : {1, 3})
      for (int stage : {2, 3}) {
        SCOPED_TRACE(fmt::format("stage {} with {} micro-batches", stage, micros));
        PretrainConfig config = each_run(c, stage, micros, true);
        config.zero.zero_group_size = GroupSize{2};
        const Curve each = train(config);
        config.zero.zero_reduce = ReducePolicy::Once;
        const Curve once = train(config);
        ASSERT_EQ(each.losses.size(), 20U);
        if (micros == 1) expect_same_bits(each, once);
        for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(each.losses[i], once.losses[i]), 1e-11);
      }
}

// Gradients that travel in bf16: whatever is sharded, an element is rounded where it leaves a rank and
// where its sum does. Returns the curve of stage 0.
Curve expect_same_bits_in_bf16(PretrainConfig config, bool each) {
  config.precision.grad_reduce_in_bf16 = true;
  config.zero.zero_stage = 0;
  Curve plain = train(config);
  EXPECT_EQ(plain.losses.size(), 20U);
  for (int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    config.zero.zero_stage = stage;
    if (each && stage >= 2) config.zero.zero_reduce = ReducePolicy::Each;
    expect_same_bits(plain, train(config));
  }
  return plain;
}

class ReduceInBf16 : public ::testing::TestWithParam<ZeroCase> {};

// A bf16 number has 8 bits: 0.2 % of a gradient at most, twice, in either direction.
TEST_P(ReduceInBf16, StaysCloseAndTheSameBitsInEveryStage) {
  const Curve wide = train(zero_run(GetParam(), 0));
  const Curve narrow = expect_same_bits_in_bf16(zero_run(GetParam(), 0), false);
  ASSERT_EQ(narrow.losses.size(), 20U);
  EXPECT_NE(narrow.grad_norms, wide.grad_norms);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3) << "step " << i + 1;
    EXPECT_LT(relative_error(narrow.grad_norms[i], wide.grad_norms[i]), 2e-2) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ReduceInBf16,
                         ::testing::Values(ZeroCase{"1f1b", 3, 1, 1, 1, false},
                                           ZeroCase{"1f1b", 2, 2, 1, 1, true},
                                           ZeroCase{"zb-h1", 2, 1, 2, 1, false}),
                         [](const auto& test) { return name_of(test.param); });

// Three groups cut a slice into parts that are not equal; in groups of one nothing else is summed.
TEST(ReduceInBf16, OfGroupsGivesTheSameBitsInEveryStage) {
  for (const auto& [ranks, group] : {std::pair(6, 2), {3, 1}}) {
    SCOPED_TRACE(group);
    PretrainConfig config = zero_run({"1f1b", ranks, 1, 1, 1, false}, 0);
    config.batch.global_batch_size = 2 * ranks;
    config.zero.zero_group_size = GroupSize{group};
    const Curve wide = train(config);
    const Curve narrow = expect_same_bits_in_bf16(config, false);
    EXPECT_NE(narrow.grad_norms, wide.grad_norms);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3);
  }
}

TEST(ReduceInBf16, AfterEachMicroBatch) {
  for (const int micros : {1, 3}) {
    SCOPED_TRACE(micros);
    const ZeroCase mesh{"1f1b", 4, 1, 1, 1, false};
    PretrainConfig config = each_run(mesh, 0, micros);
    config.zero.zero_group_size = GroupSize{2};
    if (micros == 1) {
      expect_same_bits_in_bf16(config, true);
      continue;
    }
    const Curve wide = train(config);
    config = each_run(mesh, 2, micros);
    config.zero.zero_group_size = GroupSize{2};
    config.precision.grad_reduce_in_bf16 = true;
    const Curve narrow = train(config);
    EXPECT_NE(narrow.grad_norms, wide.grad_norms);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3);
  }
}

// Updates inside the plan, on slices.
TEST(ZeroAsync, KeepsTheBitsOfStageZero) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "gradients travel in bf16" : "gradients travel in f32");
    std::vector<Curve> curves;
    for (int stage : {0, 1}) {
      PretrainConfig config = zero_run({"pipedream-2bw", 2, 1, 2, 1, false}, stage);
      config.optimizer.clip_grad = 0;
      config.pipeline.async_window = 10;
      config.precision.grad_reduce_in_bf16 = bf16;
      curves.push_back(train(config));
    }
    expect_same_bits(curves[0], curves[1]);
  }
}

}  // namespace
}  // namespace trifold::test
