#include "files/crc32.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace trifold {

uint32_t crc32_of(uint32_t crc, const void* data, size_t bytes) {
  return crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c_of(const void* data, size_t bytes) {
  constexpr uint32_t kAllOnes = 0xffffffff;
  // The library takes a length that fits an int, and does not write to the bytes.
  constexpr size_t kMost = size_t{1} << 30;
  auto* rest = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t crc = kAllOnes;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kMost);
    crc = crc32_iscsi(rest, static_cast<int>(piece), crc);
    rest += piece;
    bytes -= piece;
  }
  return crc ^ kAllOnes;
}

}  // namespace trifold
