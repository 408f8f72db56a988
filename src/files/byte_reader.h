// ByteReader: the bytes of a file from its beginning to its end, unpacked where it is packed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trifold {

enum class Packing { None, Gzip, Zstd };

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out`, as far as there are bytes, and says how many it took; 0 only at the end. BadInput, naming
  // the file, when it is damaged, cut off or not of its kind.
  virtual size_t read(std::span<char> out) = 0;
};

// By its name: "x.gz" is Gzip, "x.zst" Zstd.
Packing packing_of(std::string_view path);

// BadInput when the file cannot be opened. Members of gzip files and frames of zstd files that follow each
// other are one text.
std::unique_ptr<ByteReader> open_bytes(const std::string& path, Packing packing);

// Passes over `count` bytes; BadInput when there are fewer.
void skip_bytes(ByteReader& reader, int64_t count, const std::string& path);

}  // namespace trifold
