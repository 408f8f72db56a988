#include "mesh/shard_spec.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

TEST(EvenPart, CutsOneDim) {
  EXPECT_EQ(even_part({6, 4}, 0, 2, 3), (Rect{{4, 0}, {2, 4}}));
  EXPECT_EQ(even_part({6, 4}, 1, 0, 1), Rect::whole({6, 4}));
  std::vector<Rect> parts;
  for (int part = 0; part < 4; ++part) parts.push_back(even_part({3, 8, 2}, 1, part, 4));
  EXPECT_NO_THROW(check_exact_cover("w", {3, 8, 2}, parts));
}

TEST(EvenPart, RejectsWhatDoesNotDivide) {
  EXPECT_THROW(even_part({6, 4}, 0, 0, 4), Error);
  EXPECT_THROW(even_part({6, 4}, 2, 0, 1), Error);
  EXPECT_THROW(even_part({6, 4}, 0, 3, 3), Error);
  EXPECT_THROW(even_part({6, 4}, 0, 0, 0), Error);
}

// Over every mesh position, one of the ranks that hold the same values counts them, and copies_of says how
// many these are.
TEST(CountsHere, ExactlyOneRankPerValue) {
  const MeshSizes sizes{2, 3, 4};
  for (const AxisSet replicated :
       {AxisSet{}, AxisSet{Axis::Tp}, AxisSet{Axis::Dp}, AxisSet{Axis::Pp}, AxisSet{Axis::Tp, Axis::Dp},
        AxisSet{Axis::Tp, Axis::Pp}, AxisSet{Axis::Dp, Axis::Pp}, AxisSet{Axis::Tp, Axis::Dp, Axis::Pp}}) {
    ShardSpec spec;
    spec.replicated = replicated;
    int counted = 0;
    for (int rank = 0; rank < sizes.ranks(); ++rank) counted += counts_here(spec, coords_of(rank, sizes));
    EXPECT_EQ(counted * copies_of(spec, sizes), sizes.ranks());
    EXPECT_TRUE(counts_here(spec, {0, 0, 0}));
  }
  ShardSpec spec;
  spec.replicated = {Axis::Dp};
  EXPECT_FALSE(counts_here(spec, {0, 1, 0}));
  EXPECT_TRUE(counts_here(spec, {1, 0, 1}));
}

// Each of the ranks that share a value out counts its slice; other groups hold the same slices.
TEST(CountsHere, ThoseThatShareOutCountASliceEach) {
  ShardSpec spec;
  spec.replicated = {Axis::Tp, Axis::Dp};
  EXPECT_EQ(copies_of(spec, {2, 6, 1}, 3), 4);
  for (int dp = 0; dp < 6; ++dp) {
    EXPECT_EQ(counts_here(spec, {0, dp, 0}, 3), dp < 3);
    EXPECT_FALSE(counts_here(spec, {1, dp, 0}, 3));
  }
}

TEST(CountsHere, NeighboursOnTheTensorAxisMayHoldCopies) {
  ShardSpec spec;
  spec.replicated = {Axis::Tp, Axis::Dp};
  spec.tensor_copies = 2;
  EXPECT_EQ(copies_of(spec, {4, 3, 1}), 6);
  for (int tp = 0; tp < 4; ++tp) EXPECT_EQ(counts_here(spec, {tp, 0, 0}), tp % 2 == 0);
}

}  // namespace
}  // namespace trifold
