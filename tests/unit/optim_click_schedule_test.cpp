// Warm-up, plateau and parabola of the recommenders' learning rate.
#include "optim/click_schedule.h"

#include <gtest/gtest.h>

namespace trifold::test {
namespace {

// The rates of the convergence point for batches of 32768 (lr 18, warm-up 8000, decay from 70000 in 30000
// steps).
constexpr ClickSchedule kMlperf{8000, 70'000, 30'000};

TEST(ClickSchedule, RisesInALine) {
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 1), 18.0 / 8000);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 4000), 9);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 7999), 18.0 * 7999 / 8000);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 8000), 18);
}

TEST(ClickSchedule, StaysAndFallsInAParabola) {
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 69'999), 18);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 70'000), 18);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 85'000), 18.0 / 4);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 97'000), 18.0 / 100);
}

TEST(ClickSchedule, EndsAtAFloorAndStaysThere) {
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 100'000), 1e-7);
  EXPECT_DOUBLE_EQ(kMlperf.rate(18, 10'000'000), 1e-7);
  EXPECT_DOUBLE_EQ(kMlperf.rate(1e-9, 100'000), 1e-9);  // the floor lifts no rate
}

TEST(ClickSchedule, WithoutEitherItIsConstant) {
  for (const int64_t step : {1, 2, 1000}) EXPECT_DOUBLE_EQ(ClickSchedule{}.rate(0.1, step), 0.1);
  EXPECT_DOUBLE_EQ((ClickSchedule{4, 0, 0}.rate(0.1, 100)), 0.1);
  // Decay without warm-up, which trips the reference.
  EXPECT_DOUBLE_EQ((ClickSchedule{0, 2, 4}.rate(1, 4)), 0.25);
}

}  // namespace
}  // namespace trifold::test
