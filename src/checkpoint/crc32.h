// CRC-32 as in zlib, gzip and PNG.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trifold {

// The checksum of all bytes so far, whose checksum is `crc` (0 for none), and these. Several times as fast as
// memory is read from a disk: ISA-L takes the widest instructions that the processor has.
uint32_t crc32_of(uint32_t crc, const void* data, size_t bytes);

}  // namespace trifold
