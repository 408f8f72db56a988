#include "files/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"

namespace trifold {

namespace {

// Closes a descriptor; the mapping stays valid without it.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file{open_input_file(path)};
  struct stat status {};
  if (fstat(file.fd, &status) != 0) bad_input("{} cannot be read: {}", path, std::strerror(errno));
  size_ = status.st_size;
  if (size_ == 0) return;  // an empty mapping is not allowed, and not needed
  void* memory = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) bad_input("{} cannot be mapped into memory: {}", path, std::strerror(errno));
  data_ = static_cast<const std::byte*>(memory);
  region_ = MappedRegion(memory, static_cast<size_t>(size_), path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      region_(std::move(other.region_)) {}

void MappedFile::release(int64_t begin, int64_t end) const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end)
    madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  region_ = {};
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

}  // namespace trifold
