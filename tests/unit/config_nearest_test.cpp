#include "config/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace trifold {
namespace {

TEST(ConfigNearest, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("form", "from"), 1u);
  EXPECT_EQ(edit_distance("num-layer", "num-layers"), 1u);
}

TEST(ConfigNearest, PrefersNamesThatTheWordBegins) {
  const std::vector<std::string> names = {"load", "hidden-dropout", "lr"};
  EXPECT_EQ(nearest("hidden", names), "hidden-dropout");
  EXPECT_EQ(nearest("laod", names), "load");
  EXPECT_EQ(nearest("l", names), "lr");
  EXPECT_EQ(nearest(std::string(100000, 'x'), names), "load");  // all as far: the first
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace trifold
