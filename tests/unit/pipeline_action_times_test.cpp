#include "pipeline/action_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace trifold {
namespace {

TEST(ActionTimes, TheMedianOfEachKindAndStage) {
  int settled = 0;
  ActionTimes times([&] { ++settled; });
  const auto show = [&](ActionKind kind, int stage, int milliseconds) {
    const Action action{kind, stage};
    times.before(action);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    times.after(action);
  };
  show(ActionKind::F, 0, 40);
  times.restart();
  for (const int milliseconds : {2, 60, 20}) show(ActionKind::F, 0, milliseconds);
  for (const int milliseconds : {0, 60, 0}) show(ActionKind::F, 1, milliseconds);
  EXPECT_EQ(settled, 14);
  EXPECT_GE(times.median(ActionKind::F, 0), 20e-3);
  EXPECT_LT(times.median(ActionKind::F, 0), 60e-3);
  EXPECT_LT(times.median(ActionKind::F, 1), times.median(ActionKind::F, 0));
  EXPECT_EQ(times.median(ActionKind::I, 0), 0);
}

// In ZeRO 3 all actions are on blocks; in other steps the last backward of a stage is.
TEST(ActionTimes, BlocksStandForAStageThatIsNeverWhole) {
  ActionTimes times([] {});
  const auto show = [&](int block, int milliseconds) {
    const Action action{ActionKind::B, 0, block};
    times.before(action);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    times.after(action);
  };
  for (const int block : {2, 1, 0}) show(block, block == 2 ? 60 : 0);  // the mean is 20, the median 0
  EXPECT_GE(times.median(ActionKind::B, 0), 20e-3);
  EXPECT_LT(times.median(ActionKind::B, 0), 60e-3);
  show(Action::kAll, 80);
  EXPECT_GE(times.median(ActionKind::B, 0), 80e-3);
}

}  // namespace
}  // namespace trifold
