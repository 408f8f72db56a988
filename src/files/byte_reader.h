// ByteReader reads a file from beginning to end, decompressing it if it is packed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trifold {

enum class Packing { None, Gzip, Zstd, Xz, Bzip2 };

// The endings of compressed files, for help and messages.
inline constexpr const char* kPackedEndings = ".gz, .zst, .xz or .bz2";

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out` as far as bytes remain and returns their number; 0 only at the end. BadInput, naming the file and the
  // number of its bytes that were read, if it is damaged, truncated or not of its kind.
  virtual size_t read(std::span<char> out) = 0;
};

// The packing that a name implies: "x.gz" is Gzip, "x.zst" Zstd, "x.xz" Xz, "x.bz2" Bzip2.
Packing packing_of(std::string_view path);

// The name without its packing: "x.txt" for "x.txt.gz"; unchanged for a file that is not compressed.
std::string_view without_packing(std::string_view path);

// BadInput if the file cannot be opened or is damaged at its beginning. Successive members of a gzip file, frames of a
// zstd file, and streams of an xz or bzip2 file are one text.
std::unique_ptr<ByteReader> open_bytes(const std::string& path, Packing packing);

// Skips `count` bytes; BadInput if there are fewer.
void skip_bytes(ByteReader& reader, int64_t count, const std::string& path);

}  // namespace trifold
