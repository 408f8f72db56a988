// Memory for transient units: units that are never in memory at the same time may share a place; a unit's
// place is always the same, so addresses repeat. A greedy colouring: largest unit first, each takes the first
// place that no unit in memory at the same time has, so a place is as large as the first unit that took it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace trifold {

struct SharedPlaces {
  std::vector<int> of_unit;       // the place of each unit; -1 if it needs none
  std::vector<int64_t> elements;  // of each place
  int64_t all_elements() const;
};

// `sizes`: elements of each unit, 0 for one that needs no place. `together`: pairs of units that are in
// memory at the same time, by index, in any order.
SharedPlaces share_places(std::span<const int64_t> sizes, std::span<const std::pair<int, int>> together);

}  // namespace trifold
