#include "core/not_finite.h"

#include <algorithm>

namespace trifold {

namespace {

// Infinity and NaN have all exponent bits set, so adding one to the exponent overflows into the sign bit.
// Elements are read as unsigned integers of their size, in blocks; the loop over a block has no exit and no
// comparison, so that compilers vectorize it.
template <class Bits>
std::optional<NotFinite> search(const void* data, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 4096;
  const auto* values = static_cast<const Bits*>(data);
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits one =
      static_cast<Bits>(exponent & static_cast<Bits>(~exponent + 1));  // the exponent's lowest bit
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    Bits any = 0;
    for (int64_t i = begin; i < end; ++i)
      any = static_cast<Bits>(any | static_cast<Bits>((values[i] & exponent) + one));
    if ((any & sign) == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) != exponent) continue;
      const bool infinite = static_cast<Bits>(values[i] & static_cast<Bits>(~sign)) == exponent;
      return NotFinite{i, !infinite ? "nan" : (values[i] & sign) != 0 ? "-inf" : "inf"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<NotFinite> first_not_finite(const void* data, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::F64:
      return search<uint64_t>(data, count, 0x7FF0000000000000ULL);
    case DType::F32:
      return search<uint32_t>(data, count, 0x7F800000U);
    case DType::BF16:
      return search<uint16_t>(data, count, 0x7F80U);
    case DType::F16:
      return search<uint16_t>(data, count, 0x7C00U);
    default:
      return std::nullopt;
  }
}

}  // namespace trifold
