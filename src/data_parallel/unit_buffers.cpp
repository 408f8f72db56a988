#include "data_parallel/unit_buffers.h"

#include <algorithm>
#include <numeric>

namespace trifold {

int64_t UnitBuffers::all_elements() const {
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

UnitBuffers share_buffers(std::span<const int64_t> sizes, std::span<const std::pair<int, int>> together) {
  std::vector<std::vector<int>> others(sizes.size());
  for (const auto& [a, b] : together) {
    others[static_cast<size_t>(a)].push_back(b);
    others[static_cast<size_t>(b)].push_back(a);
  }
  std::vector<size_t> by_size;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 0) by_size.push_back(i);
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  UnitBuffers buffers{std::vector<int>(sizes.size(), -1), {}};
  for (const size_t unit : by_size) {
    std::vector<bool> taken(buffers.elements.size(), false);
    for (const int other : others[unit]) {
      const int buffer = buffers.of_unit[static_cast<size_t>(other)];
      if (buffer >= 0) taken[static_cast<size_t>(buffer)] = true;
    }
    const auto free = static_cast<size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (free == taken.size()) buffers.elements.push_back(sizes[unit]);
    buffers.of_unit[unit] = static_cast<int>(free);
  }
  return buffers;
}

}  // namespace trifold
