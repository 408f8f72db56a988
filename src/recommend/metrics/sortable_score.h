// Scores as integers with the same order, for metrics that count pairs.
#pragma once

#include <bit>
#include <cstdint>

namespace trifold {

// Bits in the order of the values: negative numbers are inverted, positive ones come after them. -0 and 0 are equal.
inline uint32_t sortable_score(float value) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0F : value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace trifold
