#include "core/trimmed.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

TEST(Trimmed, BlanksAroundATextAreLeftOut) {
  EXPECT_EQ(trimmed(" \ta b\r"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed("a\n"), "a\n");
}

TEST(Trimmed, NothingIsLeftOfBlanksAlone) {
  EXPECT_EQ(trimmed(" \t "), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Trimmed, OtherCharactersMayBeBlanks) { EXPECT_EQ(trimmed("--name-", "-"), "name"); }

}  // namespace
}  // namespace trifold
