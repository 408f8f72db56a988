// Finds elements that are infinite or NaN, at about the speed of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace trifold {

struct NotFinite {
  int64_t index = 0;      // index of the element
  std::string_view what;  // "nan", "inf" or "-inf"
};

// The first of `count` elements in host memory that is not finite. Elements of types other than
// floating-point are always finite.
std::optional<NotFinite> first_not_finite(const void* data, DType dtype, int64_t count);

}  // namespace trifold
