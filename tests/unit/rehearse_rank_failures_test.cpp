// Failures of ranks, each said once.
#include "rehearse/rank_failures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "rehearse/rehearsal_report.h"

namespace trifold::test {
namespace {

using Lines = std::vector<std::string>;

RehearsedRank rank_with(int number, std::string failure) {
  RehearsedRank rank;
  rank.rank = number;
  rank.failure = std::move(failure);
  return rank;
}

TEST(RankFailures, AreSaidOnceWithTheirRanks) {
  RankFailures failures;
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(failures.add(rank_with(0, "")), std::nullopt);
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(failures.add(rank_with(2, "no memory")), std::nullopt);
  EXPECT_EQ(failures.add(rank_with(3, "no file")), std::nullopt);
  EXPECT_EQ(failures.add(rank_with(5, "no memory")), 2);
  EXPECT_EQ(failures.add(rank_with(4, "no memory")), 2);
  EXPECT_EQ(failures.all(), (Lines{"ranks 2, 5 and 4: no memory", "rank 3: no file"}));
  EXPECT_EQ(failures.after_reports(), (Lines{"ranks 2, 3, 4 and 5, see above"}));
}

// Ranks need different amounts of memory, and the host has less free each time.
TEST(RankFailures, AmountsOfMemoryDoNotDistinguishThem) {
  RankFailures failures;
  const std::string first =
      "it needs 1.56 TiB (weights 168.98 GiB), and this host has 23.5 GiB: --micro-batches 4 fits";
  EXPECT_EQ(failures.add(rank_with(0, first)), std::nullopt);
  EXPECT_EQ(failures.add(rank_with(
                6, "it needs 1.5 TiB (weights 90 MiB), and this host has 0 B: --micro-batches 4 fits")),
            0);
  EXPECT_EQ(failures.add(rank_with(
                7, "it needs 1.5 TiB (weights 90 MiB), and this host has 0 B: --micro-batches 2 fits")),
            std::nullopt);
  EXPECT_EQ(failures.all().front(), "ranks 0 and 6: " + first);
}

TEST(RankFailures, OfTheRunFollow) {
  RankFailures failures;
  failures.add("the limit is too small");
  EXPECT_FALSE(failures.empty());
  EXPECT_EQ(failures.after_reports(), Lines{"the limit is too small"});
  failures.add(rank_with(1, "no memory"));
  EXPECT_EQ(failures.all(), (Lines{"rank 1: no memory", "the limit is too small"}));
}

TEST(RankFailures, AReportRefersToTheFirst) {
  ReportedRank reported;
  reported.rank = rank_with(6, "no memory");
  const auto says = [&](const std::string& line) {
    const Lines lines = rank_lines(reported);
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(says("fails       no memory"));
  reported.fails_as = 0;
  EXPECT_TRUE(says("fails       like rank 0"));
  EXPECT_FALSE(says("fails       no memory"));
}

}  // namespace
}  // namespace trifold::test
