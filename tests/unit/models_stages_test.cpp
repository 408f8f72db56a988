#include "models/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/random.h"

namespace trifold::test {
namespace {

using Cut = std::vector<StageRange>;

TEST(CutStages, EqualBlocksAreSharedOutEvenly) {
  const std::vector<double> costs(8, 1.0);
  EXPECT_EQ(cut_stages(costs, 1), (Cut{{0, 8}}));
  EXPECT_EQ(cut_stages(costs, 4), (Cut{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
}

TEST(CutStages, AnUnevenCountLeavesStagesOfSizesThatDifferByOne) {
  const Cut cut = cut_stages(std::vector<double>(10, 1.0), 4);
  std::vector<int> sizes;
  for (const StageRange& range : cut) sizes.push_back(range.size());
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int>{2, 2, 3, 3}));
}

// GPT-2 124M: the head costs as much as five and a half layers.
TEST(CutStages, AnExpensiveHeadTakesFewLayersWithIt) {
  std::vector<double> costs(14, 1.0);
  costs.front() = 0.01;
  costs.back() = 5.5;
  EXPECT_EQ(cut_stages(costs, 2), (Cut{{0, 10}, {10, 14}}));
}

TEST(CutStages, FreeBlocksGoSomewhere) {
  EXPECT_EQ(cut_stages(std::vector<double>{0, 1, 1, 0}, 2), (Cut{{0, 2}, {2, 4}}));
}

TEST(CutStages, TooManyStagesIsAnError) {
  EXPECT_THROW(cut_stages(std::vector<double>(3, 1.0), 4), Error);
  EXPECT_THROW(cut_stages(std::vector<double>(3, 1.0), 0), Error);
}

double worst(const Cut& cut, const std::vector<double>& costs) {
  double most = 0;
  for (const StageRange& range : cut) {
    double sum = 0;
    for (int i = range.begin; i < range.end; ++i) sum += costs[static_cast<size_t>(i)];
    most = std::max(most, sum);
  }
  return most;
}

// The least worst stage by trying every cut.
double least_worst(const std::vector<double>& costs, size_t begin, int stages) {
  double rest = 0;
  if (stages == 1) {
    for (size_t i = begin; i < costs.size(); ++i) rest += costs[i];
    return rest;
  }
  double best = 1e300;
  double first = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(stages) - 1 <= costs.size(); ++end) {
    first += costs[end - 1];
    best = std::min(best, std::max(first, least_worst(costs, end, stages - 1)));
  }
  return best;
}

TEST(CutStages, NoCutHasACheaperWorstStage) {
  const PhiloxKey key = philox_key(3, "costs");
  uint64_t word = 0;
  for (int stages = 1; stages <= 5; ++stages)
    for (int round = 0; round < 20; ++round) {
      std::vector<double> costs(9);
      for (double& cost : costs) cost = philox_word(key, word++) % 7;
      const Cut cut = cut_stages(costs, stages);
      ASSERT_EQ(cut.size(), static_cast<size_t>(stages));
      for (size_t i = 0; i < cut.size(); ++i) {
        ASSERT_EQ(cut[i].begin, i == 0 ? 0 : cut[i - 1].end);
        ASSERT_GT(cut[i].size(), 0);
      }
      ASSERT_EQ(cut.back().end, 9);
      EXPECT_EQ(worst(cut, costs), least_worst(costs, 0, stages));
    }
}

}  // namespace
}  // namespace trifold::test
