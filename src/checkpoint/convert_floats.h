// Converts floating-point elements from one type to another.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace trifold {

constexpr bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16 || dtype == DType::F16;
}

// Converts `count` elements, each rounded once, to nearest. Both types must be floating-point.
inline void convert_floats(void* to, DType to_type, const void* from, DType from_type, int64_t count) {
  dispatch_float(from_type, [&](auto from_zero) {
    dispatch_float(to_type, [&](auto to_zero) {
      const auto* in = static_cast<const decltype(from_zero)*>(from);
      auto* out = static_cast<decltype(to_zero)*>(to);
      // Through f64, which holds every value exactly.
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<decltype(to_zero)>(static_cast<double>(in[i]));
    });
  });
}

}  // namespace trifold
