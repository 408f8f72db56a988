#include "files/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

// Creates a file without a name.
class OpenFile {
 public:
  explicit OpenFile(const MemoryFolder& folder) {
    number_ = open_unnamed_file(folder.path);
    if (number_ < 0)
      bad_input("{} {}: no file can be created there ({}); name a folder that exists and is writable",
                folder.option, folder.path, std::strerror(errno));
  }
  ~OpenFile() {
    if (number_ >= 0) close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }
  // Gives up the descriptor; the caller closes it.
  int take() { return std::exchange(number_, -1); }

 private:
  int number_;
};

void check_space(const MemoryFolder& folder, size_t bytes) {
  struct statvfs space {};
  if (statvfs(folder.path.c_str(), &space) != 0) return;  // allocating the space will fail then
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes > free_bytes)
    bad_input("{} {}: a rank needs {} bytes there, and {} are free; free space, name another folder, or {}",
              folder.option, folder.path, bytes, free_bytes, folder.remedy);
}

size_t page_bytes() {
  static const auto kBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

}  // namespace

void check_memory_folder(const MemoryFolder& folder, size_t bytes) {
  const OpenFile made_and_gone(folder);
  check_space(folder, bytes);
}

void check_offload_folder(const std::string& folder) { check_memory_folder({folder}); }

int make_memory_file(const MemoryFolder& folder, size_t bytes) {
  OpenFile file(folder);
  check_space(folder, bytes);
  if (const int error = posix_fallocate(file.number(), 0, static_cast<off_t>(bytes)); error != 0)
    bad_input("{} {}: {} bytes could not be allocated on the disk ({})", folder.option, folder.path, bytes,
              std::strerror(error));
  return file.take();
}

FileMemory::FileMemory(const MemoryFolder& folder, size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  file_ = make_memory_file(folder, bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {
    close(std::exchange(file_, -1));
    bad_input("{} {}: a file of {} bytes could not be mapped ({}); name a folder of another file system",
              folder.option, folder.path, bytes, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(memory);
  region_ = MappedRegion(memory, bytes, folder.path);
}

FileMemory::~FileMemory() {
  region_ = {};
  if (data_ != nullptr) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
}

FileMemory::FileMemory(FileMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      file_(std::exchange(other.file_, -1)),
      region_(std::move(other.region_)) {}

FileMemory& FileMemory::operator=(FileMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(file_, other.file_);
  region_ = std::move(other.region_);
  return *this;
}

// madvise works on whole pages; reading a little more does no harm.
void FileMemory::expect(size_t begin, size_t end) const {
  const size_t first = begin / page_bytes() * page_bytes();
  if (first < end) madvise(data_ + first, end - first, MADV_WILLNEED);
}

// Releasing a page that a neighbour shares costs it a minor fault.
void FileMemory::release(size_t begin, size_t end) const {
  const size_t first = begin / page_bytes() * page_bytes();
  if (first < end) madvise(data_ + first, end - first, MADV_DONTNEED);
}

namespace {

// Calls move(bytes done, offset in the file) until all bytes are moved; it returns the number it moved, as pread does.
template <class Move>
void move_all(const char* what, size_t begin, size_t bytes, Move move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done, static_cast<off_t>(begin + done));
    if (moved < 0 && errno == EINTR) continue;
    check(moved > 0, "{} {} bytes at {} of a file that serves as memory failed ({})", what, bytes, begin,
          moved < 0 ? std::strerror(errno) : "the file is too short");
    done += static_cast<size_t>(moved);
  }
}

}  // namespace

void FileMemory::read(std::byte* to, size_t begin, size_t bytes) const {
  move_all("reading", begin, bytes,
           [&](size_t done, off_t place) { return pread(file_, to + done, bytes - done, place); });
}

void FileMemory::write(const std::byte* from, size_t begin, size_t bytes) const {
  move_all("writing", begin, bytes,
           [&](size_t done, off_t place) { return pwrite(file_, from + done, bytes - done, place); });
}

}  // namespace trifold
