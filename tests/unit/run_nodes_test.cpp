#include "run/nodes.h"

#include <gtest/gtest.h>

namespace trifold::test {
namespace {

using Lines = std::vector<std::string>;

TEST(Nodes, ProcessesAreListedByHost) {
  EXPECT_EQ(process_lines(std::vector<RankProcess>{{"a", 5}, {"a", 5}}), Lines{});  // threads
  EXPECT_EQ(process_lines(std::vector<RankProcess>{{"a", 5}, {"a", 6}, {"a", 7}}),
            Lines{"host a: ranks 0-2 are pids 5-7"});
  EXPECT_EQ(
      process_lines(std::vector<RankProcess>{{"b", 5}, {"a", 6}, {"a", 7}, {"b", 6}, {"b", 9}, {"b", 8}}),
      (Lines{"host b: rank 0 is pid 5, rank 3 is pid 6, rank 4 is pid 9, rank 5 is pid 8",
             "host a: ranks 1-2 are pids 6-7"}));
}

}  // namespace
}  // namespace trifold::test
