#include "models/folders/mxfp4.h"

#include <array>
#include <cmath>

namespace trifold {

namespace {

constexpr int kBias = 127;
constexpr int kNotANumber = 255;

// By the lower three bits; the fourth is the sign.
constexpr std::array<double, 8> kSizes{0, 0.5, 1, 1.5, 2, 3, 4, 6};

double element(unsigned bits) {
  const double size = kSizes[bits & 7U];
  return (bits & 8U) != 0 ? -size : size;
}

}  // namespace

bool dequantise_mxfp4(std::span<Bfloat16> values, std::span<const std::byte> blocks,
                      std::span<const std::byte> scales) {
  auto* value = values.data();
  for (size_t block = 0; block < scales.size(); ++block) {
    const int scale = std::to_integer<int>(scales[block]);
    if (scale == kNotANumber) return false;
    std::array<Bfloat16, 16> table{};  // values of the block's elements
    for (unsigned bits = 0; bits < table.size(); ++bits)
      table[bits] = Bfloat16(std::ldexp(element(bits), scale - kBias));
    for (int64_t i = 0; i < kMxfp4BlockBytes; ++i) {
      const auto pair = std::to_integer<unsigned>(blocks[block * kMxfp4BlockBytes + static_cast<size_t>(i)]);
      for (const unsigned bits : {pair & 15U, pair >> 4U}) {
        if (!std::isfinite(static_cast<double>(table[bits]))) return false;
        *value++ = table[bits];
      }
    }
  }
  return true;
}

}  // namespace trifold
