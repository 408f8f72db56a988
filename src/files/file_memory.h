// FileMemory is memory backed by a mapped file on disk. Pages are loaded when they are touched and count as resident
// memory of the process until they are released.
//
// The file is created exclusively and unlinked at once, so it disappears at any end of the process. Its disk space is
// allocated in advance: a full disk is an Error here instead of a signal later (copy-on-write file systems do not
// guarantee that). Released pages stay in the page cache while memory is plentiful; under pressure the kernel writes
// them back and drops them.
#pragma once

#include <cstddef>
#include <string>

#include "files/mapped_region.h"

namespace trifold {

// A folder for such files, and the words of messages about it.
struct MemoryFolder {
  std::string path;
  std::string option = "--offload";  // the option that names the folder
  // The remedy for too little space.
  std::string remedy = "shard the state over more ranks (--zero-stage 1 or more)";
};

// BadInput unless files can be created in the folder and `bytes` are free.
void check_memory_folder(const MemoryFolder& folder, size_t bytes = 0);

// check_memory_folder for the folder of --offload.
void check_offload_folder(const std::string& folder);

// Creates a file of `bytes` without a name, with allocated disk space, and returns its descriptor; the caller closes
// it. BadInput as in FileMemory.
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
  // Declares that bytes [begin, end) are not needed soon: they keep their values but are no longer resident.
  void release(size_t begin, size_t end) const;

  // Copy between the file and other memory without touching the mapping: copied pages do not become resident, and a
  // failing disk is an Error instead of a signal. Threads may copy different bytes at the same time.
  void read(std::byte* to, size_t begin, size_t bytes) const;
  void write(const std::byte* from, size_t begin, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int file_ = -1;
  MappedRegion region_;
};

}  // namespace trifold
