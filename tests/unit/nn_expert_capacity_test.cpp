// Which choices experts drop: the worked example of three tokens and four experts (ops_experts_test.cpp), ties, several
// sequences, and gates that are no numbers.
#include "nn/expert_capacity.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/ops.h"

namespace trifold {
namespace {

using Choices = std::vector<int32_t>;

// With how.factor of the mean as capacity.
template <class T>
Choices taken_of(Choices chosen, std::vector<T> gates, int64_t choices, int64_t experts, int64_t seq,
                 const ExpertCapacity& how) {
  Choices taken(chosen.size(), -1);
  const Shape shape{static_cast<int64_t>(chosen.size()) / choices, choices};
  ThreadPool pool(2);
  Stream stream(Stream::Mode::Inline, pool);
  cpu_ops().drop_choices(stream, {taken.data(), DType::I32, shape}, {chosen.data(), DType::I32, shape},
                         {gates.data(), sizeof(T) == sizeof(double) ? DType::F64 : DType::F32, shape},
                         {experts, seq, expert_capacity(how.factor, seq, choices, experts), how.kept});
  return taken;
}

// Experts 0 and 2 have two tokens each, and room for one of 3 x 2 / 4 x 0.5.
TEST(ExpertCapacity, WorkedExample) {
  const Choices chosen{0, 2, 0, 1, 2, 3};
  const std::vector<double> gates{.182426, .817574, .524979, .475021, .289050, .710950};
  const std::vector<float> narrow(gates.begin(), gates.end());
  for (const double factor : {0.5, 0.1, 2.0 / 3})
    EXPECT_EQ(taken_of(chosen, gates, 2, 4, 3, {factor, KeptChoices::LargestGates}),
              (Choices{4, 2, 0, 1, 4, 3}))
        << factor;
  EXPECT_EQ(taken_of(chosen, narrow, 2, 4, 3, {0.5, KeptChoices::LargestGates}), (Choices{4, 2, 0, 1, 4, 3}));
  EXPECT_EQ(taken_of(chosen, gates, 2, 4, 3, {0.5, KeptChoices::FirstTokens}), (Choices{0, 2, 4, 1, 4, 3}));
  for (const double factor : {0.7, 1.0, 1e300})
    for (const KeptChoices kept : {KeptChoices::LargestGates, KeptChoices::FirstTokens})
      EXPECT_EQ(taken_of(chosen, gates, 2, 4, 3, {factor, kept}), chosen) << factor;
}

TEST(ExpertCapacity, IsCountedOverEverySequence) {
  const Choices chosen{0, 0, 1, 0, 1, 1};
  const std::vector<double> gates{.1, .2, .3, .4, .5, .6};
  EXPECT_EQ(taken_of(chosen, gates, 1, 2, 3, {0.5, KeptChoices::LargestGates}), (Choices{2, 0, 1, 0, 2, 1}));
  EXPECT_EQ(taken_of(chosen, gates, 1, 2, 6, {0.3, KeptChoices::LargestGates}), (Choices{2, 2, 2, 0, 2, 1}));
  EXPECT_EQ(taken_of(chosen, gates, 1, 2, 6, {0.3, KeptChoices::FirstTokens}), (Choices{0, 2, 1, 2, 2, 2}));
}

TEST(ExpertCapacity, TheEarlierOfEqualGatesIsKept) {
  const Choices chosen(8, 1);
  const std::vector<double> gates{.5, .7, .5, .7, .5, .7, .5, .5};
  EXPECT_EQ(taken_of(chosen, gates, 1, 2, 8, {1, KeptChoices::LargestGates}),
            (Choices{1, 1, 2, 1, 2, 1, 2, 2}));
}

TEST(ExpertCapacity, GatesThatAreNoNumbersDropAsManyChoices) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Choices chosen(6, 0);
  EXPECT_EQ(taken_of<double>(chosen, {nan, .1, nan, nan, .2, .3}, 1, 1, 6, {0.5, KeptChoices::LargestGates}),
            (Choices{0, 1, 0, 0, 1, 1}));
}

TEST(ExpertCapacity, IsRoundedUp) {
  EXPECT_EQ(expert_capacity(1, 512, 2, 8), 128);
  EXPECT_EQ(expert_capacity(1.25, 512, 2, 8), 160);
  EXPECT_EQ(expert_capacity(1.1, 400, 2, 8), 110) << "100 x 1.1 is 110.00000000000001";
  EXPECT_EQ(expert_capacity(1, 10, 2, 8), 3);
  EXPECT_EQ(expert_capacity(1e-9, 10, 2, 8), 1);
  EXPECT_EQ(expert_capacity(5, 10, 2, 8), 10) << "an expert has no more tokens than there are";
  EXPECT_EQ(expert_capacity(1e300, 10, 2, 8), 10);
}

TEST(ExpertCapacity, ShapesAreChecked) {
  EXPECT_THROW(taken_of<double>({0, 0, 0}, {1, 1, 1}, 1, 1, 2, {1, KeptChoices::FirstTokens}), Error);
  EXPECT_THROW(taken_of<double>({0, 0}, {1, 1}, 1, 1, 2, {0, KeptChoices::FirstTokens}), Error);
}

}  // namespace
}  // namespace trifold
