// The sketch of counts: never below a count that was kept, and rarely above.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "clicks/keys/key_counts.h"

namespace trifold {
namespace {

TEST(KeyCounts, IsNeverBelowWhatWasKept) {
  KeyCounts counts(10);
  std::vector<KeyCounts::Change> changes;
  for (uint64_t key = 1; key <= 100'000; ++key) counts.keep(key, 1 + key % 7, changes);
  for (uint64_t key = 1; key <= 100'000; ++key) ASSERT_GE(counts.of(key), 1 + key % 7);
  counts.keep(5, 1, changes);  // changes nothing
  EXPECT_GE(counts.of(5), 6U);
  counts.keep(6, 1'000'000, changes);
  EXPECT_EQ(counts.of(6), KeyCounts::kMost);
}

TEST(KeyCounts, IsRarelyAbove) {
  constexpr uint64_t kKeys = 200'000, kAsked = 100'000;
  KeyCounts counts(kKeys);  // width 2 kKeys
  std::vector<KeyCounts::Change> changes;
  for (uint64_t key = 1; key <= kKeys; ++key) counts.keep(key, 1, changes);
  int too_high = 0;
  for (uint64_t key = 1; key <= kAsked; ++key) too_high += counts.of(kKeys + key) > 0 ? 1 : 0;
  const double expected = std::pow(1 - std::exp(-0.5), 4);
  EXPECT_NEAR(too_high / static_cast<double>(kAsked), expected, expected / 10);
}

TEST(KeyCounts, ChangesCanBeUndone) {
  KeyCounts counts(10);
  std::vector<KeyCounts::Change> first, second;
  counts.keep(1, 3, first);
  const std::vector<KeyCounts::Counter> before(counts.counters().begin(), counts.counters().end());
  counts.keep(1, 4, second);
  counts.keep(1, 9, second);
  for (auto change = second.rbegin(); change != second.rend(); ++change) counts.swap(*change);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), counts.counters().begin()));
  for (KeyCounts::Change& change : second) counts.swap(change);
  EXPECT_EQ(counts.of(1), 9U);
}

TEST(KeyCounts, TakesTheMemoryItSays) {
  for (const size_t entries : {1U, 131'072U, 200'000U})
    EXPECT_EQ(KeyCounts(entries).counters().size_bytes(), KeyCounts::bytes(entries));
  EXPECT_EQ(KeyCounts().of(1), 0U);
}

}  // namespace
}  // namespace trifold
