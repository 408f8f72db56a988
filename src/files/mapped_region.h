// MappedRegion records that a range of memory maps a file. Reading such memory after the file was shortened, or while
// its disk fails, raises no error that can be caught but a signal, SIGBUS, whose handler finds here which file was
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trifold {

struct MappedRegionNode;

class MappedRegion {
 public:
  MappedRegion() = default;  // records nothing
  // `bytes` at `begin` map the file `path`, from its beginning, until the region is destroyed.
  MappedRegion(const void* begin, size_t bytes, const std::string& path);
  ~MappedRegion();
  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  MappedRegion& operator=(MappedRegion&& other) noexcept;

 private:
  MappedRegionNode* node_ = nullptr;
};

struct FileLocation {
  const char* path = nullptr;  // null: the address is in no region
  int64_t offset = 0;          // offset of the address in the file
  int64_t bytes = 0;           // size of the file when it was mapped
};

// The file and offset that `address` maps. May be called by a signal handler.
FileLocation mapped_location(const void* address) noexcept;

}  // namespace trifold
