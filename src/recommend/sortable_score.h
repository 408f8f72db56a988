// Scores as whole numbers that sort as they do, for metrics that count pairs.
#pragma once

#include <bit>
#include <cstdint>

namespace trifold {

// Bits that sort as the values do: negative numbers are turned over, positive ones come after them. -0 and 0
// are one score.
inline uint32_t sortable_score(float value) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0F : value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace trifold
