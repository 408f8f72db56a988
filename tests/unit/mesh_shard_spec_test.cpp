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

TEST(EvenPart, RejectsSizesThatDoNotDivide) {
  EXPECT_THROW(even_part({6, 4}, 0, 0, 4), Error);
  EXPECT_THROW(even_part({6, 4}, 2, 0, 1), Error);
  EXPECT_THROW(even_part({6, 4}, 0, 3, 3), Error);
  EXPECT_THROW(even_part({6, 4}, 0, 0, 0), Error);
}

int counted(const ShardSpec& spec, const MeshSizes& sizes, int slices = 1) {
  int counted = 0;
  for (int rank = 0; rank < sizes.ranks(); ++rank)
    counted += counts_here(spec, coords_of(rank, sizes), sizes, slices);
  return counted;
}

// Over every mesh position, one of the ranks that hold the same values counts them, and copies_of says how
// many these are: in both grids.
TEST(CountsHere, ExactlyOneRankPerValue) {
  const MeshSizes sizes{{Axis::Tp, 2}, {Axis::Cp, 2}, {Axis::Dp, 3}, {Axis::Pp, 4}, {Axis::Ep, 6}};
  const std::vector<std::vector<Axis>> grids{{Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp},
                                             {Axis::Etp, Axis::Ep, Axis::Edp, Axis::Pp}};
  for (const std::vector<Axis>& grid : grids)
    for (unsigned set = 0; set < 16; ++set) {
      ShardSpec spec;
      for (size_t i = 0; i < grid.size(); ++i)
        if ((set >> i & 1) != 0) spec.replicated = spec.replicated | AxisSet{grid[i]};
      EXPECT_EQ(copies_of(spec, sizes), sizes.ranks(spec.replicated));
      EXPECT_EQ(counted(spec, sizes) * copies_of(spec, sizes), sizes.ranks());
      int alike = 0;
      for (int rank = 0; rank < sizes.ranks(); ++rank) alike += counts_here(spec, coords_of(rank, sizes));
      EXPECT_EQ(alike, counted(spec, sizes));
      EXPECT_TRUE(counts_here(spec, {}));
    }
  ShardSpec spec;
  spec.replicated = {Axis::Dp};
  EXPECT_FALSE(counts_here(spec, {{Axis::Dp, 1}}));
  EXPECT_TRUE(counts_here(spec, {{Axis::Tp, 1}, {Axis::Pp, 1}}));
}

// Each of the ranks that share a value out counts its slice; other groups hold the same slices.
TEST(CountsHere, ThoseThatShareOutCountASliceEach) {
  const MeshSizes sizes{{Axis::Tp, 2}, {Axis::Cp, 2}, {Axis::Dp, 3}};
  ShardSpec spec;
  spec.replicated = kStageAxes;
  for (const int slices : {1, 2, 3, 6}) {
    EXPECT_EQ(copies_of(spec, sizes, slices), 12 / slices);
    EXPECT_EQ(counted(spec, sizes, slices), slices);
    for (int rank = 0; rank < sizes.ranks(); ++rank) {
      const MeshCoords at = coords_of(rank, sizes);
      const int place = at[Axis::Cp] + 2 * at[Axis::Dp];
      EXPECT_EQ(counts_here(spec, at, sizes, slices), at[Axis::Tp] == 0 && place < slices);
    }
  }
}

TEST(CountsHere, NeighboursOnTheTensorAxisMayHoldCopies) {
  const MeshSizes sizes{{Axis::Tp, 4}, {Axis::Dp, 3}};
  ShardSpec spec;
  spec.replicated = kStageAxes;
  spec.tensor_copies = 2;
  EXPECT_EQ(copies_of(spec, sizes), 6);
  for (int tp = 0; tp < 4; ++tp) EXPECT_EQ(counts_here(spec, {{Axis::Tp, tp}}), tp % 2 == 0);
  EXPECT_EQ(counted(spec, sizes, 3), 6);
}

}  // namespace
}  // namespace trifold
