// ZipFile: the directory of a zip archive (also ZIP64), and random access to its members.
//
// A stored member's bytes can be read from any offset without reading the rest of the file; libarchive, which reads
// NumPy's archives (files/npz_file.h), gives only whole members in order. Nothing is ever written by name, and names
// that would leave a folder are rejected all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/raw_file.h"

namespace trifold {

struct ZipMember {
  std::string name;
  int64_t bytes = 0;         // size of the content
  int64_t packed_bytes = 0;  // in the archive; as many as `bytes` if the member is stored
  int64_t offset = 0;        // where they begin in the file
  uint32_t crc = 0;
  bool deflated = false;  // else stored
};

class ZipFile {
 public:
  // Reads the directory. BadInput, naming the file, if it is missing, is not a zip archive, or is damaged: a truncated
  // directory, members outside the file or over each other, two of one name, a name with "..", an encrypted member, a
  // compression other than deflate.
  explicit ZipFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return bytes_; }
  // Ordered by name.
  const std::vector<ZipMember>& members() const { return members_; }
  // Null if there is none.
  const ZipMember* find(std::string_view name) const;
  // The member; BadInput if there is none.
  const ZipMember& at(std::string_view name) const;

  // The whole content, after a check of its checksum. BadInput if it has more than `most` bytes, or is damaged.
  std::string read(const ZipMember& member, int64_t most) const;
  // Bytes from `offset` on of a stored member, without a check of its checksum.
  void read_stored(const ZipMember& member, int64_t offset, std::span<std::byte> to) const;
  // Compares a stored member with its checksum, and reads it once for that. BadInput if they differ.
  void verify(const ZipMember& member) const;

 private:
  RawFile file_;
  int64_t bytes_;
  std::vector<ZipMember> members_;
};

}  // namespace trifold
