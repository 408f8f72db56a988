// Ranks that are slower than their peers.
#include "run/health/stragglers.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "support/ranks.h"

namespace trifold::test {
namespace {

// Own time of a rank in a step, in seconds.
using OwnTime = std::function<double(int rank, int64_t step)>;

// The changes that all ranks report, by step.
std::vector<SlowRank> watch(int ranks, int64_t steps, const OwnTime& time, std::vector<int> groups = {},
                            int64_t interval = 4) {
  std::mutex mutex;
  std::map<int, std::vector<SlowRank>> heard;
  run_ranks(ranks, [&](Communicator& world) {
    Stragglers stragglers(world, interval, groups);
    std::vector<SlowRank> mine;
    for (int64_t step = 1; step <= steps; ++step)
      for (SlowRank& change : stragglers.add(step, time(world.rank(), step))) mine.push_back(change);
    const std::lock_guard lock(mutex);
    heard[world.rank()] = std::move(mine);
  });
  for (const auto& [rank, changes] : heard) {
    EXPECT_EQ(changes.size(), heard[0].size()) << rank;
    for (size_t i = 0; i < changes.size() && i < heard[0].size(); ++i) {
      EXPECT_EQ(changes[i].rank, heard[0][i].rank);
      EXPECT_EQ(changes[i].step, heard[0][i].step);
      EXPECT_EQ(changes[i].process, heard[0][i].process);
    }
  }
  return heard[0];
}

// Equal times for the same rank and step, which differ by up to 20 %.
double noise(int rank, int64_t step) {
  std::minstd_rand random(static_cast<unsigned>(1000 * step + rank + 1));
  random.discard(3);
  return 0.9 + 0.2 * static_cast<double>(random() % 1000) / 1000;
}

TEST(Stragglers, NameARankSlowedToHalfWithin20Steps) {
  const auto slow = [](int rank, int64_t step) {
    return noise(rank, step) * (rank == 2 && step >= 50 ? 0.02 : 0.01);
  };
  const std::vector<SlowRank> changes = watch(4, 100, slow);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].rank, 2);
  EXPECT_TRUE(changes[0].is_slow);
  EXPECT_GE(changes[0].step, 60);
  EXPECT_LT(changes[0].step, 70);
  EXPECT_NEAR(changes[0].times, 2, 0.3);
  EXPECT_NEAR(changes[0].seconds, 0.02, 0.003);
  EXPECT_NE(changes[0].process.find("pid"), std::string::npos);
}

TEST(Stragglers, NameARankThatWasAlwaysSlowAndSayWhenItRecovers) {
  const auto slow = [](int rank, int64_t step) {
    return noise(rank, step) * (rank == 1 && step < 60 ? 0.03 : 0.02);
  };
  const std::vector<SlowRank> changes = watch(2, 120, slow);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].rank, 1);
  EXPECT_TRUE(changes[0].is_slow);
  EXPECT_EQ(changes[0].step, 20);
  EXPECT_FALSE(changes[1].is_slow);
  EXPECT_EQ(changes[1].rank, 1);
}

// Load that moves between two ranks every 10 steps, each time with another phase to the comparisons.
TEST(Stragglers, LoadThatMovesIsNoAlarm) {
  for (const int64_t shift : {0, 1, 2, 3}) {
    const auto moving = [&](int rank, int64_t step) {
      return noise(rank, step) * ((step + shift) / 10 % 2 == rank ? 0.025 : 0.01);
    };
    EXPECT_EQ(watch(2, 2000, moving).size(), 0U) << shift;
  }
}

// Steps of a millisecond differ by more than a half when anything else runs on the host.
TEST(Stragglers, AnExcessOfMillisecondsIsNoAlarm) {
  const auto slow = [](int rank, int64_t) { return rank == 1 ? 0.002 : 0.001; };
  EXPECT_EQ(watch(2, 500, slow).size(), 0U);
}

TEST(Stragglers, SingleSlowStepsAreNoAlarm) {
  const auto hiccups = [](int rank, int64_t step) {
    return noise(rank, step) * (rank == 0 && step % 3 != 0 ? 0.05 : 0.01);
  };
  EXPECT_EQ(watch(3, 500, hiccups).size(), 0U);
}

// Stages of a pipeline do different work; the second stage has one rank, which becomes slow.
TEST(Stragglers, StagesAreNotCompared) {
  const auto stages = [](int rank, int64_t step) {
    return noise(rank, step) * (rank < 2 ? 0.01 : rank == 2 && step >= 100 ? 0.06 : 0.03);
  };
  EXPECT_EQ(watch(3, 90, stages, {0, 0, 1}).size(), 0U);
  const std::vector<SlowRank> changes = watch(3, 200, stages, {0, 0, 1});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].rank, 2);
  EXPECT_LT(changes[0].step, 120);
}

TEST(Stragglers, TheIntervalDecidesWhenRanksAreCompared) {
  const auto slow = [](int rank, int64_t) { return rank == 3 ? 0.02 : 0.01; };
  EXPECT_EQ(watch(4, 100, slow, {}, 1).at(0).step, 20);
  EXPECT_EQ(watch(4, 100, slow, {}, 25).at(0).step, 29);
  EXPECT_EQ(watch(4, 28, slow, {}, 25).size(), 0U);
}

}  // namespace
}  // namespace trifold::test
