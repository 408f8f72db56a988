// The constants of the .idx file that its reader and its writer share; indexed_dataset.h describes the
// format.
#pragma once

#include <array>
#include <cstdint>

namespace trifold {

inline constexpr std::array<char, 9> kIndexMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr int64_t kIndexHeaderBytes = 34;

}  // namespace trifold
