#include "data_parallel/shared_places.h"

#include <algorithm>
#include <numeric>

namespace trifold {

int64_t SharedPlaces::all_elements() const {
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

SharedPlaces share_places(std::span<const int64_t> sizes, std::span<const std::pair<int, int>> together) {
  std::vector<std::vector<int>> others(sizes.size());
  for (const auto& [a, b] : together) {
    others[static_cast<size_t>(a)].push_back(b);
    others[static_cast<size_t>(b)].push_back(a);
  }
  std::vector<size_t> by_size;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 0) by_size.push_back(i);
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  SharedPlaces places{std::vector<int>(sizes.size(), -1), {}};
  for (const size_t unit : by_size) {
    std::vector<bool> taken(places.elements.size(), false);
    for (const int other : others[unit]) {
      const int place = places.of_unit[static_cast<size_t>(other)];
      if (place >= 0) taken[static_cast<size_t>(place)] = true;
    }
    const auto free = static_cast<size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (free == taken.size()) places.elements.push_back(sizes[unit]);
    places.of_unit[unit] = static_cast<int>(free);
  }
  return places;
}

}  // namespace trifold
