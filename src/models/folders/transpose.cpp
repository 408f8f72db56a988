#include "models/folders/transpose.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

// Transposes in tiles, so that both matrices stay in the cache while a tile is transposed.
template <class T>
void transpose_as(std::byte* to, const std::byte* from, int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
        for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
          std::memcpy(to + (c * rows + r) * static_cast<int64_t>(sizeof(T)),
                      from + (r * columns + c) * static_cast<int64_t>(sizeof(T)), sizeof(T));
}

}  // namespace

void transpose(std::byte* to, const std::byte* from, int64_t rows, int64_t columns, size_t size) {
  switch (size) {
    case 1:
      return transpose_as<uint8_t>(to, from, rows, columns);
    case 2:
      return transpose_as<uint16_t>(to, from, rows, columns);
    case 4:
      return transpose_as<uint32_t>(to, from, rows, columns);
    case 8:
      return transpose_as<uint64_t>(to, from, rows, columns);
    default:
      fail("no elements of {} bytes can be transposed", size);
  }
}

}  // namespace trifold
