// Files as a checkpoint needs them: checksums, text, and making sure that what was written is on the disk.
// All errors name the file and what the system said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trifold {

// CRC-32 as in zlib, gzip and PNG.
uint32_t crc_of_memory(const void* data, size_t bytes);

// Bytes of a file whose checksum is known without reading them back.
struct KnownRegion {
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t crc = 0;
};

// The CRC of a whole file, taking the checksums of `known` (ordered, disjoint) as given and reading only what
// lies between them. Made after a write, it tells what *should* be in the file: a byte that went wrong on its
// way to the disk is found by the next reader.
uint32_t crc_of_file(const std::filesystem::path& path, std::span<const KnownRegion> known = {});

// The CRC of bytes [begin, begin + bytes) as they are in the file now.
uint32_t crc_of_file_range(const std::filesystem::path& path, int64_t begin, int64_t bytes);

// The content of a text file; one larger than `most_bytes` is an Error.
std::string read_text(const std::filesystem::path& path, int64_t most_bytes);

// Writes a new file and waits until it is on the disk.
void write_text(const std::filesystem::path& path, std::string_view text);

// Waits until a file, or the list of names in a directory, is on the disk.
void sync_to_disk(const std::filesystem::path& path);

// Sixteen random hexadecimal digits.
std::string random_id();

}  // namespace trifold
