#include "config/fields/nearest.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

using NameList = std::vector<std::string>;

TEST(ConfigNearest, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("form", "from"), 1u);
  EXPECT_EQ(edit_distance("num-layer", "num-layers"), 1u);
}

TEST(ConfigNearest, FindsTypingErrorsAndNamesCutShort) {
  const NameList names = {"load", "hidden-size", "hidden-dropout",
                          "lr",   "num-layers",  "num-layers-per-virtual-pipeline-stage"};
  EXPECT_EQ(similar("hiden-size", names), NameList{"hidden-size"});
  EXPECT_EQ(similar("laod", names), NameList{"load"});
  EXPECT_EQ(similar("num-layer", names), NameList{"num-layers"});
  EXPECT_EQ(similar("hidden", names), NameList{"hidden-size"});
  EXPECT_EQ(similar("rl", names), NameList{"lr"});
}

TEST(ConfigNearest, FindsTheSamePartsInAnotherOrder) {
  const NameList names = {"micro-batch-size", "global-batch-size", "num-attention-heads",
                          "vocab-size",       "hidden-dropout",    "attention-dropout"};
  EXPECT_EQ(similar("attention-heads", names), NameList{"num-attention-heads"});
  EXPECT_EQ(similar("attention-head-num", names), NameList{"num-attention-heads"});
  EXPECT_EQ(similar("batch-sizes", names), (NameList{"micro-batch-size", "global-batch-size"}));
  EXPECT_EQ(similar("dropout", names), (NameList{"hidden-dropout", "attention-dropout"}));
}

TEST(ConfigNearest, SaysNothingWhereNothingIsLike) {
  const NameList names = {"async-save", "seq-length", "vocab-size", "lr"};
  for (const char* word : {"learning-rate", "use-flash-attn", "local-rank", "x", "", "frobnicate", "a-size"})
    EXPECT_EQ(similar(word, names), NameList{}) << word;
  EXPECT_EQ(similar(std::string(100000, 'x'), names), NameList{});
  EXPECT_EQ(similar("x", {}), NameList{});
}

TEST(ConfigNearest, NamesAlternatives) {
  EXPECT_EQ(alternatives(NameList{"a"}, "--"), "--a");
  EXPECT_EQ(alternatives(NameList{"a", "b"}, "--"), "--a or --b");
  EXPECT_EQ(alternatives(NameList{"a", "b", "c"}, ""), "a, b or c");
}

}  // namespace
}  // namespace trifold
