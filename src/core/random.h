// Random numbers by global position: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number depends only on (seed, name, global element index), never on the rank, so initial
// weights and dropout masks are the same on every mesh, and no generator state needs to be saved. Words and
// normal numbers are computed from the same blocks: use one name for one purpose only.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace trifold {

struct PhiloxKey {
  uint32_t lo = 0;
  uint32_t hi = 0;
};

// One key per (seed, name): 64-bit FNV-1a over the name, started from the seed, then mixed (SplitMix64's
// finaliser).
constexpr PhiloxKey philox_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  hash ^= hash >> 31;
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

// Four independent uniform 32-bit words for one 64-bit counter. Uses scalars instead of an array, because it is called
// for every weight, also in unoptimized builds.
constexpr std::array<uint32_t, 4> philox(PhiloxKey key, uint64_t counter) {
  uint32_t w = static_cast<uint32_t>(counter), x = static_cast<uint32_t>(counter >> 32), y = 0, z = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * w;
    const uint64_t b = uint64_t{0xCD9E8D57} * y;
    w = static_cast<uint32_t>(b >> 32) ^ x ^ key.lo;
    x = static_cast<uint32_t>(b);
    y = static_cast<uint32_t>(a >> 32) ^ z ^ key.hi;
    z = static_cast<uint32_t>(a);
    key.lo += 0x9E3779B9U;
    key.hi += 0xBB67AE85U;
  }
  return {w, x, y, z};
}

// The uniform 32-bit word of one global element: four neighbouring elements share one Philox block.
constexpr uint32_t philox_word(PhiloxKey key, uint64_t element) {
  return philox(key, element / 4)[element % 4];
}

// A standard normal number for one global element (Box-Muller over two words of the element's own block).
inline double philox_normal(PhiloxKey key, uint64_t element) {
  constexpr double kUnit = 1.0 / 4294967296.0;
  const auto words = philox(key, element);
  const double u = (words[0] + 0.5) * kUnit;  // in (0, 1): the logarithm is finite
  const double v = (words[1] + 0.5) * kUnit;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace trifold
