#include "files/crc32.h"

#include <isa-l/crc.h>

namespace trifold {

uint32_t crc32_of(uint32_t crc, const void* data, size_t bytes) {
  return crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace trifold
