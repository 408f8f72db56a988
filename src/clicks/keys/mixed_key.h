// mixed_key: the final mix of SplitMix64, a bijection, for hash tables of keys that may be consecutive numbers.
#pragma once

#include <cstdint>

namespace trifold {

constexpr uint64_t mixed_key(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
  return key ^ (key >> 31);
}

}  // namespace trifold
