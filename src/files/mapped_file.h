// MappedFile presents a whole file as read-only memory, paged in by the system as it is touched.
//
// The file must not be shortened while it is mapped: reading past its new end ends the process (SIGBUS), with a message
// that names the file (files/mapped_region.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "files/mapped_region.h"

namespace trifold {

class MappedFile {
 public:
  // BadInput, naming `path`, if it does not exist, is not a regular file or may not be read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Advises the system that bytes [begin, end) are not needed soon, so that they do not count as memory of this
  // process. They can be read again.
  void release(int64_t begin, int64_t end) const;
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  MappedRegion region_;
};

}  // namespace trifold
