// Scores as integers with the same order, for metrics that count pairs.
#pragma once

#include <bit>
#include <cstdint>

namespace trifold {

// Returns an integer that orders like the value: the bits of negative values are inverted, positive values come after
// them. -0 and 0 are equal.
inline uint32_t sortable_score(float value) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0F : value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace trifold
