// CRC-32 as in zlib, gzip and PNG, and CRC-32C (Castagnoli) as in iSCSI and TFRecord.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trifold {

// Extends `crc`, the checksum of earlier bytes (0 for none), by these bytes. Several times as fast as a disk delivers
// them: ISA-L uses the widest instructions of the processor.
uint32_t crc32_of(uint32_t crc, const void* data, size_t bytes);

// The CRC-32C of these bytes.
uint32_t crc32c_of(const void* data, size_t bytes);

}  // namespace trifold
