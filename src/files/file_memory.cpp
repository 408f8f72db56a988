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

namespace trifold {

namespace {

// Closes the file on destruction; the mapping stays.
class OpenFile {
 public:
  explicit OpenFile(const std::string& folder) {
    std::string name = folder + "/trifold-offload-XXXXXX";
    number_ = mkostemp(name.data(), O_CLOEXEC);
    if (number_ < 0)
      bad_input("--offload {}: no file can be created there ({}); name a folder that exists and is writable",
                folder, std::strerror(errno));
    unlink(name.c_str());
  }
  ~OpenFile() { close(number_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

void check_space(const std::string& folder, size_t bytes) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) return;  // allocating the space will fail then
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes > free_bytes)
    bad_input(
        "--offload {}: a rank needs {} bytes there, and {} are free; free space, name another folder, or "
        "shard the state over more ranks (--zero-stage 1 or more)",
        folder, bytes, free_bytes);
}

size_t page_bytes() {
  static const auto kBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

}  // namespace

void check_offload_folder(const std::string& folder) { const OpenFile made_and_gone(folder); }

FileMemory::FileMemory(const std::string& folder, size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const OpenFile file(folder);
  check_space(folder, bytes);
  if (const int error = posix_fallocate(file.number(), 0, static_cast<off_t>(bytes)); error != 0)
    bad_input("--offload {}: {} bytes could not be allocated on the disk ({})", folder, bytes,
              std::strerror(error));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  check(memory != MAP_FAILED, "--offload {}: a file of {} bytes could not be mapped ({})", folder, bytes,
        std::strerror(errno));
  data_ = static_cast<std::byte*>(memory);
}

FileMemory::~FileMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

FileMemory::FileMemory(FileMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

FileMemory& FileMemory::operator=(FileMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// madvise takes whole pages; reading a little more does no harm.
void FileMemory::expect(size_t begin, size_t end) const {
  const size_t first = begin / page_bytes() * page_bytes();
  if (first < end) madvise(data_ + first, end - first, MADV_WILLNEED);
}

// Releasing a page that a neighbour shares costs it a minor fault.
void FileMemory::release(size_t begin, size_t end) const {
  const size_t first = begin / page_bytes() * page_bytes();
  if (first < end) madvise(data_ + first, end - first, MADV_DONTNEED);
}

}  // namespace trifold
