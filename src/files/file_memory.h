// FileMemory: memory backed by a mapped file on disk. Pages are loaded when they are touched and count as resident
// memory of the process until they are released.
//
// The file is created exclusively and unlinked at once, so it disappears when the process ends, however it ends. Its
// disk space is allocated in advance: a full disk is an Error here instead of a signal later (copy-on-write file
// systems do not guarantee that). Released pages stay in the page cache while memory is plenty; under pressure the
// kernel writes them back and drops them.
#pragma once

#include <cstddef>
#include <string>

#include "files/mapped_region.h"

namespace trifold {

// A folder for such files, with the words that messages use about it.
struct MemoryFolder {
  std::string path;
  std::string option = "--offload";  // names the folder
  // A remedy for too little space.
  std::string remedy = "shard the state over more ranks (--zero-stage 1 or more)";
};

// BadInput unless files can be created there, and `bytes` are free.
void check_memory_folder(const MemoryFolder& folder, size_t bytes = 0);

// The same for the folder that --offload names.
void check_offload_folder(const std::string& folder);

// A new file of `bytes` that has no name any more, whose disk space is allocated; the caller closes it. BadInput as
// FileMemory's.
int make_memory_file(const MemoryFolder& folder, size_t bytes);

class FileMemory {
 public:
  FileMemory() = default;
  // Initialised to zero. BadInput if the folder does not exist, is not writable or lacks the space.
  FileMemory(const std::string& folder, size_t bytes) : FileMemory(MemoryFolder{folder}, bytes) {}
  FileMemory(const MemoryFolder& folder, size_t bytes);
  ~FileMemory();
  FileMemory(FileMemory&& other) noexcept;
  FileMemory& operator=(FileMemory&& other) noexcept;
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Starts reading bytes [begin, end), which are needed soon, without waiting.
  void expect(size_t begin, size_t end) const;
  // Bytes [begin, end) are not needed soon: they keep their values but are no longer resident.
  void release(size_t begin, size_t end) const;

  // Copies between the file and other memory without touching the mapping: copied pages do not become resident, and
  // a disk that fails is an Error instead of a signal. Any threads may copy different bytes at the same time.
  void read(std::byte* to, size_t begin, size_t bytes) const;
  void write(const std::byte* from, size_t begin, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int file_ = -1;
  MappedRegion region_;
};

}  // namespace trifold
