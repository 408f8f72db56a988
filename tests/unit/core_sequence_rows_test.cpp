#include "core/sequence_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace trifold {
namespace {

std::vector<int64_t> positions_of(const SequenceRows& rows) {
  std::vector<int64_t> positions;
  for (const RowRun& run : rows.runs()) {
    EXPECT_EQ(run.row, static_cast<int64_t>(positions.size()));
    for (int64_t at = run.begin; at < run.end(); ++at) positions.push_back(at);
  }
  EXPECT_EQ(static_cast<int64_t>(positions.size()), rows.rows());
  return positions;
}

using Positions = std::vector<int64_t>;

TEST(SequenceRows, AreARunFromEachEnd) {
  EXPECT_EQ(positions_of(SequenceRows::zig_zag(12, 0, 3)), (Positions{0, 1, 10, 11}));
  EXPECT_EQ(positions_of(SequenceRows::zig_zag(12, 1, 3)), (Positions{2, 3, 8, 9}));
  EXPECT_EQ(positions_of(SequenceRows::zig_zag(12, 2, 3)), (Positions{4, 5, 6, 7}));
  EXPECT_EQ(positions_of(SequenceRows::zig_zag(16, 0, 2)), (Positions{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(positions_of(SequenceRows::zig_zag(16, 1, 2)), (Positions{4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(SequenceRows, MayFollowEachOther) {
  EXPECT_EQ(positions_of(SequenceRows::consecutive(12, 0, 3)), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(positions_of(SequenceRows::consecutive(12, 2, 3)), (Positions{8, 9, 10, 11}));
  EXPECT_EQ(positions_of(SequenceRows::consecutive(9, 1, 3)), (Positions{3, 4, 5}));
  EXPECT_TRUE(SequenceRows::consecutive(9, 0, 1).whole());
}

TEST(SequenceRows, KnowThoseOfOtherRanks) {
  for (const RowCut how : {RowCut::BothEnds, RowCut::Consecutive})
    for (int part = 0; part < 3; ++part)
      EXPECT_EQ(SequenceRows::cut(how, 12, 1, 3).of_part(part), SequenceRows::cut(how, 12, part, 3));
  EXPECT_EQ(SequenceRows(12).of_part(0), SequenceRows(12));
}

TEST(SequenceRows, OfOneRankAreAll) {
  const SequenceRows rows = SequenceRows::zig_zag(5, 0, 1);
  EXPECT_TRUE(rows.whole());
  EXPECT_EQ(positions_of(rows), (Positions{0, 1, 2, 3, 4}));
  EXPECT_EQ(SequenceRows().rows(), 0);
}

// Under a causal mask the query of position i sees i + 1 keys.
TEST(SequenceRows, GiveEveryRankAsManyPairs) {
  for (const int parts : {2, 3, 4, 8})
    for (int part = 0; part < parts; ++part) {
      int64_t pairs = 0;
      for (const int64_t position : positions_of(SequenceRows::zig_zag(48, part, parts)))
        pairs += position + 1;
      EXPECT_EQ(pairs, 48 * 49 / 2 / parts);
    }
}

TEST(SequenceRows, RefuseRunsThatAreNotAlike) {
  try {
    SequenceRows::zig_zag(14, 0, 2);
    FAIL() << "14 positions were cut into 4 runs";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("14 positions cannot be cut into 4 equal runs"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trifold
