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
  for (const int milliseconds : {2, 60, 3}) show(ActionKind::F, 0, milliseconds);
  show(ActionKind::F, 1, 0);
  EXPECT_EQ(settled, 10);
  EXPECT_GE(times.median(ActionKind::F, 0), 3e-3);
  EXPECT_LT(times.median(ActionKind::F, 0), 40e-3);
  EXPECT_LT(times.median(ActionKind::F, 1), times.median(ActionKind::F, 0));
  EXPECT_EQ(times.median(ActionKind::I, 0), 0);
}

}  // namespace
}  // namespace trifold
