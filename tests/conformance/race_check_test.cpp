// The emulation's race check reports every kernel of racy_kernels.h that lacks a barrier, and no other.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "conformance/race_report.h"
#include "conformance/racy_kernels.h"

namespace trifold::conformance {
namespace {

using cuda::emulation::AccessKind;
using cuda::emulation::Race;
using cuda::emulation::RaceCheck;

class RaceChecks : public testing::Test {
 protected:
  void SetUp() override {
    if (!RaceCheck::is_available())
      GTEST_SKIP() << "kernels of builds with a sanitizer do not report accesses";
  }

  // The kernel with the mistake has `races`, without it none.
  template <class Kernel>
  std::vector<Race> expect_found(Kernel kernel) {
    EXPECT_EQ(report(races_of([&] { kernel(true); })), "");
    std::vector<Race> races = races_of([&] { kernel(false); });
    EXPECT_FALSE(races.empty());
    return races;
  }
  template <class Call>
  std::vector<Race> races_of(Call call) {
    const RaceCheck check;
    call();
    return check.races();
  }

  std::array<float, 192> from_{}, to_{};
  int64_t count_ = 0;
};

TEST_F(RaceChecks, AMissingBarrierOfABlockIsNamedWithItsAccesses) {
  const auto races = expect_found([&](bool right) { sum_through_shared(right, to_.data(), from_.data()); });
  ASSERT_EQ(races.size(), 1U);  // one pair of instructions, however many words
  EXPECT_TRUE(races[0].shared);
  EXPECT_EQ(races[0].kernel, "sum_kernel");
  // Threads run in order: the first reads what others write later.
  EXPECT_EQ(races[0].first.kind, AccessKind::Read);
  EXPECT_EQ(races[0].first.thread, 0U);
  EXPECT_EQ(races[0].second.kind, AccessKind::Write);
  EXPECT_EQ(races[0].second.thread, 1U);
  const std::string text = report(races);
  EXPECT_NE(text.find("race in sum_kernel, shared memory at "), std::string::npos) << text;
  EXPECT_NE(text.find("thread 0 of block 0 reads it ("), std::string::npos) << text;
  if (std::system("addr2line --version >/dev/null 2>&1") == 0) {
    EXPECT_NE(text.find("(racy_kernels.cu:"), std::string::npos) << text;
  }
}

TEST_F(RaceChecks, AShuffleOrdersNoMemory) {
  const auto races = expect_found([&](bool right) { swap_neighbours(right, to_.data(), from_.data()); });
  EXPECT_EQ(races[0].first.thread / 32, races[0].second.thread / 32);
}

TEST_F(RaceChecks, ATileIsOverwrittenWhileOthersReadIt) {
  expect_found([&](bool right) { fill_twice(right, to_.data(), from_.data()); });
}

TEST_F(RaceChecks, BlocksOfALaunchAreNotOrdered) {
  const auto races = expect_found([&](bool right) { one_place_for_all_blocks(right, to_.data()); });
  EXPECT_FALSE(races[0].shared);
  EXPECT_EQ(races[0].address, to_.data());
  EXPECT_EQ(races[0].first.block, 0U);
  EXPECT_EQ(races[0].second.block, 1U);
}

TEST_F(RaceChecks, EqualWritesRaceToo) {
  expect_found([&](bool right) { everyone_writes(right, to_.data()); });
}

TEST_F(RaceChecks, AtomicAdditionsDoNotRace) {
  expect_found([&](bool right) { count_threads(right, &count_); });
}

TEST_F(RaceChecks, NeighbouringBytesAreApart) {
  std::array<uint8_t, 64> bytes{};
  const auto races = expect_found([&](bool right) { bytes_of_words(right, bytes.data()); });
  EXPECT_EQ(races[0].first.thread / 4, races[0].second.thread / 4);
}

// What phase barriers order, and barriers of some threads.
TEST_F(RaceChecks, BoxesAreOrderedByTheirPhasesAlone) {
  std::vector<float> from(2 * 8 * 32, 1);
  const auto races_with = [&](BoxMistake mistake) {
    return races_of([&] { sum_boxes(mistake, to_.data(), from.data()); });
  };
  EXPECT_EQ(report(races_with(BoxMistake::None)), "");
  EXPECT_EQ(to_[31], 17);
  for (const BoxMistake mistake : {BoxMistake::LateWaitForBox, BoxMistake::NoWaitForReader,
                                   BoxMistake::EarlyArrival, BoxMistake::TooFewThreads}) {
    const std::vector<Race> races = races_with(mistake);
    EXPECT_FALSE(races.empty()) << static_cast<int>(mistake);
    for (const Race& race : races) EXPECT_TRUE(race.shared);
  }
}

TEST_F(RaceChecks, OperandsAreReadUntilTheirProductIsAwaited) {
  const std::vector<Bfloat16> from(2 * 64 * 64, Bfloat16(1.0));
  const auto races = expect_found([&](bool right) { multiply_boxes(right, to_.data(), from.data()); });
  EXPECT_TRUE(races[0].shared);
}

// Launches follow each other: what one wrote the next may read and write.
TEST_F(RaceChecks, LaunchesAreOrdered) {
  const RaceCheck check;
  sum_through_shared(true, to_.data(), from_.data());
  sum_through_shared(true, from_.data(), to_.data());
  everyone_writes(true, to_.data());
  EXPECT_EQ(report(check.races()), "");
}

}  // namespace
}  // namespace trifold::conformance
