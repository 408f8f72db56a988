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

// Over every mesh position, exactly one of the ranks that hold the same values owns them.
TEST(IsOwner, ExactlyOneRankPerValue) {
  const AxisSet all{Axis::Tp, Axis::Dp, Axis::Pp};
  for (int bits = 0; bits < 8; ++bits) {
    ShardSpec spec;
    const bool tp = (bits & 1) != 0;
    const bool dp = (bits & 2) != 0;
    const bool pp = (bits & 4) != 0;
    if (tp && dp && pp)
      spec.replicated = all;
    else if (tp && dp)
      spec.replicated = {Axis::Tp, Axis::Dp};
    else if (tp && pp)
      spec.replicated = {Axis::Tp, Axis::Pp};
    else if (dp && pp)
      spec.replicated = {Axis::Dp, Axis::Pp};
    else if (tp)
      spec.replicated = {Axis::Tp};
    else if (dp)
      spec.replicated = {Axis::Dp};
    else if (pp)
      spec.replicated = {Axis::Pp};
    int owners = 0;
    for (int t = 0; t < 2; ++t)
      for (int d = 0; d < 3; ++d)
        for (int p = 0; p < 4; ++p) owners += is_owner(spec, {t, d, p});
    EXPECT_EQ(owners, (tp ? 1 : 2) * (dp ? 1 : 3) * (pp ? 1 : 4));
    EXPECT_TRUE(is_owner(spec, {0, 0, 0}));
  }
  ShardSpec spec;
  spec.replicated = {Axis::Dp};
  EXPECT_FALSE(is_owner(spec, {0, 1, 0}));
  EXPECT_TRUE(is_owner(spec, {1, 0, 1}));
}

}  // namespace
}  // namespace trifold
