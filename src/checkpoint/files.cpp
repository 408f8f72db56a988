#include "checkpoint/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kBlock = size_t{1} << 20;

class File {
 public:
  File(const std::filesystem::path& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    check(fd_ >= 0, "{} cannot be opened: {}", path_.string(), std::strerror(errno));
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int64_t size() const {
    struct stat status {};
    check(::fstat(fd_, &status) == 0, "{}: {}", path_.string(), std::strerror(errno));
    return status.st_size;
  }

  // Reads exactly `bytes` bytes at `offset`; an earlier end of the file is an Error.
  void read(void* to, size_t bytes, int64_t offset) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t got =
          ::pread(fd_, static_cast<char*>(to) + done, bytes - done, offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, "{} cannot be read: {}", path_.string(), std::strerror(errno));
      check(got > 0, "{} ends early: byte {} is missing", path_.string(),
            offset + static_cast<int64_t>(done));
      done += static_cast<size_t>(got);
    }
  }

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = ::write(fd_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      check(put >= 0, "{} cannot be written: {}", path_.string(), std::strerror(errno));
      text.remove_prefix(static_cast<size_t>(put));
    }
  }

  void sync() const {
    check(::fsync(fd_) == 0, "{} cannot be synced: {}", path_.string(), std::strerror(errno));
  }

  void close() {
    const int fd = fd_;
    fd_ = -1;
    check(::close(fd) == 0, "{} cannot be closed: {}", path_.string(), std::strerror(errno));
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

uint32_t continue_crc(uint32_t crc, const File& file, int64_t begin, int64_t end) {
  std::vector<unsigned char> block(static_cast<size_t>(std::clamp<int64_t>(end - begin, 0, kBlock)));
  while (begin < end) {
    const auto bytes = std::min(block.size(), static_cast<size_t>(end - begin));
    file.read(block.data(), bytes, begin);
    crc = static_cast<uint32_t>(crc32_z(crc, block.data(), bytes));
    begin += static_cast<int64_t>(bytes);
  }
  return crc;
}

}  // namespace

uint32_t crc_of_memory(const void* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const unsigned char*>(data), bytes));
}

uint32_t crc_of_file(const std::filesystem::path& path, std::span<const KnownRegion> known) {
  const File file(path, O_RDONLY);
  const int64_t size = file.size();
  uint32_t crc = 0;
  int64_t at = 0;
  for (const KnownRegion& region : known) {
    check(at <= region.offset && region.bytes <= size - region.offset,
          "{}: bytes [{}, {}) are not where they were written", path.string(), region.offset,
          region.offset + region.bytes);
    crc = continue_crc(crc, file, at, region.offset);
    crc = static_cast<uint32_t>(crc32_combine(crc, region.crc, region.bytes));
    at = region.offset + region.bytes;
  }
  return continue_crc(crc, file, at, size);
}

uint32_t crc_of_file_range(const std::filesystem::path& path, int64_t begin, int64_t bytes) {
  return continue_crc(0, File(path, O_RDONLY), begin, begin + bytes);
}

std::string read_text(const std::filesystem::path& path, int64_t most_bytes) {
  const File file(path, O_RDONLY);
  const int64_t size = file.size();
  check(size <= most_bytes, "{} has {} bytes, more than the {} it may have", path.string(), size, most_bytes);
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  file.write(text);
  file.sync();
  file.close();
}

void sync_to_disk(const std::filesystem::path& path) {
  File file(path, O_RDONLY);
  file.sync();
  file.close();
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace trifold
