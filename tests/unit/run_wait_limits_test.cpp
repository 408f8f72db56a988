// Time-outs learned from the parts of a run.
#include "run/flight/wait_limits.h"

#include <gtest/gtest.h>

#include <thread>

namespace trifold::test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kWorld{600'000};

WatchConfig learning(double factor, double floor_seconds) {
  WatchConfig config;
  config.timeout_factor = factor;
  config.timeout_floor_seconds = floor_seconds;
  return config;
}

void part(WaitLimits& limits, RunPart part, milliseconds duration = milliseconds(0)) {
  limits.begin(part);
  std::this_thread::sleep_for(duration);
  limits.end();
}

TEST(WaitLimits, AreAMultipleOfTheLongestDuration) {
  FlightRecorder recorder(0, 1);
  WaitLimits limits(&recorder, learning(10, 0.001));
  for (int i = 0; i < 4; ++i) part(limits, RunPart::Step);
  EXPECT_FALSE(limits.learned(RunPart::Step));  // too few
  part(limits, RunPart::Step, milliseconds(20));
  ASSERT_TRUE(limits.learned(RunPart::Step));
  EXPECT_GE(*limits.learned(RunPart::Step), milliseconds(200));
  EXPECT_LT(*limits.learned(RunPart::Step), milliseconds(2000));
  limits.begin(RunPart::Step);
  EXPECT_EQ(recorder.wait_limit(kWorld), *limits.learned(RunPart::Step));
  EXPECT_EQ(recorder.wait_limit(milliseconds(5)), milliseconds(5));  // never longer than the world's
  limits.end();
}

TEST(WaitLimits, HaveAFloor) {
  WaitLimits limits(nullptr, learning(10, 120));
  for (int i = 0; i < 5; ++i) part(limits, RunPart::Step);
  EXPECT_EQ(*limits.learned(RunPart::Step), milliseconds(120'000));
}

TEST(WaitLimits, ForgetDurationsOfLongAgo) {
  WaitLimits limits(nullptr, learning(10, 0.001));
  part(limits, RunPart::Step, milliseconds(30));
  for (int i = 0; i < 63; ++i) part(limits, RunPart::Step);
  EXPECT_GE(*limits.learned(RunPart::Step), milliseconds(300));
  part(limits, RunPart::Step);
  EXPECT_LT(*limits.learned(RunPart::Step), milliseconds(300));
}

// Another rank may still be in the part before, or in a part that this rank has not seen yet.
TEST(WaitLimits, CoverThePartBeforeToo) {
  FlightRecorder recorder(0, 1);
  {
    WaitLimits limits(&recorder, learning(10, 0.001));
    for (int i = 0; i < 5; ++i) part(limits, RunPart::Step);
    limits.begin(RunPart::Save);
    EXPECT_EQ(recorder.wait_limit(kWorld), kWorld);  // the first save
    std::this_thread::sleep_for(milliseconds(20));
    limits.end();
    limits.begin(RunPart::Step);
    EXPECT_EQ(recorder.wait_limit(kWorld), *limits.learned(RunPart::Save));
    limits.end();
    limits.begin(RunPart::Step);
    EXPECT_EQ(recorder.wait_limit(kWorld), *limits.learned(RunPart::Step));
    limits.end();
  }
  EXPECT_EQ(recorder.wait_limit(kWorld), kWorld);
}

TEST(WaitLimits, FactorZeroLearnsNothing) {
  FlightRecorder recorder(0, 1);
  WaitLimits limits(&recorder, learning(0, 0.001));
  for (int i = 0; i < 9; ++i) part(limits, RunPart::Step);
  limits.begin(RunPart::Step);
  EXPECT_EQ(recorder.wait_limit(kWorld), kWorld);
}

}  // namespace
}  // namespace trifold::test
