// RawFile reads and writes arrays of values in a file at any offset, from several threads at a time.
//
// File (files/file.h) serves the files that a run keeps: it syncs, reserves space and announces each write to the other
// ranks, which allocates. RawFile, for scratch and prepared data, only reads and writes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace trifold {

class RawFile {
 public:
  enum class Mode { Create, Read };

  // BadInput, naming the path, if it cannot be opened. Create replaces an older file.
  RawFile(const std::string& path, Mode mode);
  // A new unnamed file in the system's temporary folder (TMPDIR), which disappears when it is closed.
  static RawFile temporary();
  ~RawFile();
  RawFile(RawFile&& other) noexcept;
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  RawFile& operator=(RawFile&&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const;
  // The descriptor, for libraries that read it themselves; this object keeps ownership.
  int descriptor() const { return descriptor_; }
  // Writes all bytes, or throws Failure with the system's reason (a full disk, say).
  void write(std::span<const std::byte> bytes, int64_t offset);
  void read(std::span<std::byte> bytes, int64_t offset) const;

  template <class T>
  void write_all(std::span<const T> values, int64_t first) {
    write(std::as_bytes(values), first * static_cast<int64_t>(sizeof(T)));
  }
  template <class T>
  void read_all(std::span<T> values, int64_t first) const {
    read(std::as_writable_bytes(values), first * static_cast<int64_t>(sizeof(T)));
  }

 private:
  RawFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace trifold
