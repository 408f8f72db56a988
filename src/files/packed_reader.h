// The readers of compressed files from which open_bytes (byte_reader.h) chooses.
//
// gzip is read by zlib: libarchive does not compare the checksums at the end of gzip members, so a changed byte would
// go unnoticed (docs/decisions/0028-packed-files.md). All other formats are read by libarchive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "files/byte_reader.h"

namespace trifold {

// The most zero bytes that may follow the data: tapes and block devices fill their last block with them, and xz files
// may be padded. More of them (a file with a hole) would take seconds to read in every pass.
inline constexpr int64_t kMostZeros = int64_t{1} << 20;

// Both throw BadInput if the file cannot be opened. `packing` is Zstd, Xz or Bzip2.
std::unique_ptr<ByteReader> open_gzip(const std::string& path);
std::unique_ptr<ByteReader> open_packed(const std::string& path, Packing packing);

}  // namespace trifold
