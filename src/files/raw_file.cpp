#include "files/raw_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"
#include "files/scratch_folder.h"

namespace trifold {

RawFile::RawFile(const std::string& path, Mode mode) : path_(path) {
  descriptor_ = mode == Mode::Create ? open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                                     : open_input_file(path);
  if (descriptor_ < 0) bad_input("{} cannot be written: {}", path, std::strerror(errno));
}

RawFile RawFile::temporary() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) bad_input("TMPDIR does not name a folder for temporary files: {}", error.message());
  const int descriptor = open_unnamed_file(folder);
  if (descriptor < 0)
    bad_input("{}: no temporary file can be created there ({}): set TMPDIR to another folder",
              folder.string(), std::strerror(errno));
  return {(folder / "a temporary file").string(), descriptor};
}

RawFile::RawFile(RawFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

RawFile::~RawFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int64_t RawFile::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail("{}: {}", path_, std::strerror(errno));
  return status.st_size;
}

void RawFile::write(std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("{} cannot be written: {}", path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void RawFile::read(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t done = pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("{} cannot be read: {}", path_, std::strerror(errno));
    if (done == 0) fail("{} ends at byte {}, {} more were expected", path_, offset, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

}  // namespace trifold
