// MappedRegion: notes that memory shows a file. Reading such memory where the file has become shorter, or where its disk
// fails, is no error that can be caught but a signal, SIGBUS; its handler finds here which file was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trifold {

struct MappedRegionNode;

class MappedRegion {
 public:
  MappedRegion() = default;  // of nothing
  // `bytes` at `begin` show the file `path`, from its beginning, until the region is destroyed.
  MappedRegion(const void* begin, size_t bytes, const std::string& path);
  ~MappedRegion();
  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  MappedRegion& operator=(MappedRegion&& other) noexcept;

 private:
  MappedRegionNode* node_ = nullptr;
};

struct MappedPlace {
  const char* path = nullptr;  // null: the address is in no region
  int64_t offset = 0;          // of the address in the file
  int64_t bytes = 0;           // of the file, when it was mapped
};

// The place that `address` shows. May be called by a signal handler.
MappedPlace mapped_place(const void* address) noexcept;

}  // namespace trifold
