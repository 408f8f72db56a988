// FileMemory: memory whose home is a file on disk, mapped whole. What is used is brought in page by page, and
// given up again when the user says so; until then it counts as resident memory of the process.
//
// The file is made exclusively and loses its name at once, so it is gone when the process ends, however that
// is. Its space is taken from the disk before it is used: a full disk is an Error here and no signal later (a
// file system that copies on write does not promise that). Pages given up stay in the kernel's cache while
// memory is plenty; the kernel writes them back and drops them when it is not.
#pragma once

#include <cstddef>
#include <string>

namespace trifold {

// BadInput unless files can be made in the folder that --offload names.
void check_offload_folder(const std::string& folder);

class FileMemory {
 public:
  FileMemory() = default;
  // All zero. BadInput when the folder is not there, cannot be written to, or has not that much space.
  FileMemory(const std::string& folder, size_t bytes);
  ~FileMemory();
  FileMemory(FileMemory&& other) noexcept;
  FileMemory& operator=(FileMemory&& other) noexcept;
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Starts reading bytes [begin, end), which are needed soon. Nothing waits for it.
  void expect(size_t begin, size_t end) const;
  // Bytes [begin, end) are not needed soon: they are resident no more, and keep their values.
  void release(size_t begin, size_t end) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace trifold
