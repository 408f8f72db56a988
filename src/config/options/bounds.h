// Upper bounds far beyond any real run, so that products of sizes never overflow 64 bits.
#pragma once

namespace trifold {

inline constexpr double kMaxSize = 1 << 30;
inline constexpr double kMaxRanks = 1 << 20;
inline constexpr double kMaxCount = 1e12;
inline constexpr double kMaxLossScale = 1e30;  // a scaled loss must stay a finite f32

}  // namespace trifold
