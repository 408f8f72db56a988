// Waiting for data while reacting to signals.
#include "run/stop_poll.h"

#include <gtest/gtest.h>

#include <array>

#include "support/ranks.h"

namespace trifold::test {
namespace {

using std::chrono::milliseconds;

// What each of three ranks hears when rank r is ready from the polls[r]-th time on, and rank 1 gets a signal
// when it is asked for the `signalled`-th time.
std::array<bool, 3> wait_on_three(std::array<int, 3> polls, int signalled) {
  std::array<bool, 3> heard{};
  run_ranks(3, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    ThreadPool pool(1);
    Stream stream(Stream::Mode::Inline, pool);
    std::atomic<int> signal{0};
    int asked = 0;
    heard[rank] = wait_until_ready(world, stream, signal, [&](milliseconds) {
      ++asked;
      if (rank == 1 && asked == signalled) signal = 15;
      return asked >= polls[rank];
    });
  });
  return heard;
}

TEST(WaitUntilReady, TakesAsLongAsTheSlowestRank) {
  EXPECT_EQ(wait_on_three({1, 1, 1}, 0), (std::array{true, true, true}));
  EXPECT_EQ(wait_on_three({1, 4, 2}, 0), (std::array{true, true, true}));
}

TEST(WaitUntilReady, ASignalOfOneRankEndsTheWaitOfAll) {
  EXPECT_EQ(wait_on_three({1, 1, 1 << 30}, 3), (std::array{false, false, false}));
}

// Available data are used: a run that stops then has done a step.
TEST(WaitUntilReady, ASignalDoesNotMatterOnceAllAreReady) {
  EXPECT_EQ(wait_on_three({2, 2, 2}, 2), (std::array{true, true, true}));
}

}  // namespace
}  // namespace trifold::test
