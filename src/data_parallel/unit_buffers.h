// UnitBuffers: assigns buffers to the units (data_parallel/flat_layout.h) that are in memory for a part of a step only.
// Units that are never in memory at the same time may share a buffer; a unit's buffer is always the same, so addresses
// repeat. The assignment is a greedy colouring: from the largest unit to the smallest, each gets the first buffer that
// no unit in memory at the same time has, so a buffer is as large as its first unit.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace trifold {

struct UnitBuffers {
  std::vector<int> of_unit;       // the buffer of each unit; -1: none
  std::vector<int64_t> elements;  // the size of each buffer
  int64_t all_elements() const;
};

// `sizes`: elements of each unit; 0: it needs no buffer. `together`: pairs of units, by index, that are in memory at
// the same time, in any order.
UnitBuffers share_buffers(std::span<const int64_t> sizes, std::span<const std::pair<int, int>> together);

}  // namespace trifold
