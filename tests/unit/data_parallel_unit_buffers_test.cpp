// Units that are never in memory together share a place of the size of the largest of them.
#include "data_parallel/unit_buffers.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

// An embedding that is there with the first and the last of a row of layers, each of which is there with the
// next: the layers need two buffers of their size in addition to the embedding's, which one of them shares.
TEST(UnitBuffers, FitTheUnitsThatTakeThem) {
  const std::vector<int64_t> sizes{100, 10, 10, 12, 10};
  const UnitBuffers buffers = share_buffers(sizes, Pairs{{0, 1}, {1, 2}, {2, 3}, {4, 3}, {4, 0}});
  EXPECT_EQ(buffers.elements, (std::vector<int64_t>{100, 10, 10}));
  EXPECT_EQ(buffers.all_elements(), 120);
  EXPECT_EQ(buffers.of_unit, (std::vector<int>{0, 1, 2, 0, 1}));
}

TEST(UnitBuffers, LeaveOutUnitsWithoutSize) {
  const UnitBuffers buffers = share_buffers(std::vector<int64_t>{0, 5, 7}, Pairs{{0, 1}, {0, 2}});
  EXPECT_EQ(buffers.of_unit, (std::vector<int>{-1, 0, 0}));
  EXPECT_EQ(buffers.elements, std::vector<int64_t>{7});
  EXPECT_EQ(share_buffers({}, {}).all_elements(), 0);
}

}  // namespace
}  // namespace trifold
