// Transposes a matrix of elements of any size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trifold {

// to [columns, rows] = from [rows, columns], transposed; elements of `size` bytes (1, 2, 4 or 8). No overlap.
void transpose(std::byte* to, const std::byte* from, int64_t rows, int64_t columns, size_t size);

}  // namespace trifold
