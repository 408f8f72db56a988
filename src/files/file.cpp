#include "files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/host_thread.h"
#include "core/input_file.h"
#include "files/crc32.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

constexpr size_t kBlock = size_t{1} << 20;

std::atomic<SyncCall> sync_call{::fsync};

uint32_t continue_crc(uint32_t crc, const File& file, int64_t begin, int64_t end) {
  std::vector<unsigned char> block(static_cast<size_t>(std::clamp<int64_t>(end - begin, 0, kBlock)));
  while (begin < end) {
    const auto bytes = std::min(block.size(), static_cast<size_t>(end - begin));
    file.read(block.data(), bytes, begin);
    crc = crc32_of(crc, block.data(), bytes);
    begin += static_cast<int64_t>(bytes);
  }
  return crc;
}

int flags_of(File::Mode mode) {
  switch (mode) {
    case File::Mode::Read:
    case File::Mode::ReadBack:
      return O_RDONLY;
    case File::Mode::Change:
      return O_RDWR;
    case File::Mode::Create:
      return O_RDWR | O_CREAT | O_EXCL;
  }
  return O_RDWR;
}

// Calls visit(begin, end) for every gap between `regions` in a file of `size` bytes.
template <class Visit>
void for_each_gap(const File& file, std::span<const KnownRegion> regions, Visit&& visit) {
  const int64_t size = file.size();
  int64_t at = 0;
  for (const KnownRegion& region : regions) {
    check(at <= region.offset && region.bytes <= size - region.offset,
          "{}: bytes [{}, {}) are not where they were written", file.path().string(), region.offset,
          region.offset + region.bytes);
    visit(at, region.offset, &region);
    at = region.offset + region.bytes;
  }
  visit(at, size, nullptr);
}

}  // namespace

File::File(std::filesystem::path path, Mode mode)
    : path_(std::move(path)),
      fd_(mode == Mode::Read ? open_input_file(path_.string())
                             : ::open(path_.c_str(), flags_of(mode) | O_CLOEXEC, 0666)) {
  check(fd_ >= 0, "{} cannot be opened: {}", path_.string(), std::strerror(errno));
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

int64_t File::size() const {
  struct stat status {};
  const bool done = ::fstat(fd_, &status) == 0;
  check(done, "{}: {}", path_.string(), std::strerror(errno));
  return status.st_size;
}

void File::read(void* to, size_t bytes, int64_t offset) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(fd_, static_cast<char*>(to) + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, "{} cannot be read: {}", path_.string(), std::strerror(errno));
    check(got > 0, "{} ends early: byte {} is missing", path_.string(), offset + static_cast<int64_t>(done));
    done += static_cast<size_t>(got);
  }
}

void File::write(const void* from, size_t bytes, int64_t offset) const {
  const DiskWait waits(path_.native());
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = ::pwrite(fd_, static_cast<const char*>(from) + done, bytes - done,
                                 offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    check(put >= 0, "{} cannot be written: {}", path_.string(), std::strerror(errno));
    done += static_cast<size_t>(put);
  }
}

void File::expect(size_t bytes, int64_t offset) const {
  ::posix_fadvise(fd_, offset, static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);  // a hint: it may fail
}

void File::resize(int64_t bytes) const {
  const bool done = ::ftruncate(fd_, bytes) == 0;
  check(done, "{} cannot be resized to {} bytes: {}", path_.string(), bytes, std::strerror(errno));
}

void File::reserve(int64_t bytes) const {
  if (bytes == 0 || ::fallocate(fd_, 0, 0, bytes) == 0) return;
  check(errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR, "no space for the {} bytes of {}: {}",
        bytes, path_.string(), std::strerror(errno));
}

void File::sync() const {
  const DiskWait waits(path_.native());
  const bool done = sync_call.load()(fd_) == 0;
  check(done, "{} cannot be synced: {}", path_.string(), std::strerror(errno));
}

void File::close() {
  const bool done = ::close(std::exchange(fd_, -1)) == 0;
  check(done, "{} cannot be closed: {}", path_.string(), std::strerror(errno));
}

void BlockCrc::add(const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const size_t in_block = static_cast<size_t>(bytes_) % block_;
    const size_t part = std::min(bytes, block_ - in_block);
    open_ = crc32_of(open_, from, part);
    if (in_block + part == block_) full_.push_back(std::exchange(open_, 0));
    bytes_ += static_cast<int64_t>(part);
    from += part;
    bytes -= part;
  }
}

std::vector<uint32_t> BlockCrc::blocks() const {
  std::vector<uint32_t> all = full_;
  if (static_cast<size_t>(bytes_) % block_ != 0) all.push_back(open_);
  return all;
}

uint32_t BlockCrc::whole() const {
  uint32_t crc = 0;
  for (const uint32_t block : full_)
    crc = static_cast<uint32_t>(crc32_combine(crc, block, static_cast<int64_t>(block_)));
  return static_cast<uint32_t>(crc32_combine(crc, open_, bytes_ % static_cast<int64_t>(block_)));
}

uint32_t crc_of_memory(const void* data, size_t bytes) { return crc32_of(0, data, bytes); }

uint32_t crc_of_file(const File& file, std::span<const KnownRegion> known) {
  uint32_t crc = 0;
  for_each_gap(file, known, [&](int64_t begin, int64_t end, const KnownRegion* next) {
    crc = continue_crc(crc, file, begin, end);
    if (next != nullptr) crc = static_cast<uint32_t>(crc32_combine(crc, next->crc, next->bytes));
  });
  return crc;
}

uint32_t crc_of_rest(const File& file, std::span<const KnownRegion> around) {
  uint32_t crc = 0;
  for_each_gap(file, around, [&](int64_t begin, int64_t end, const KnownRegion*) {
    crc = continue_crc(crc, file, begin, end);
  });
  return crc;
}

uint32_t crc_of_file_range(const File& file, int64_t begin, int64_t bytes) {
  return continue_crc(0, file, begin, begin + bytes);
}

std::string first_bytes(const std::filesystem::path& path, size_t most) {
  std::string bytes(most, '\0');
  std::ifstream file(path);
  file.read(bytes.data(), std::ssize(bytes));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  File file(path, File::Mode::Create);
  file.write(text.data(), text.size(), 0);
  file.sync();
  file.close();
}

std::filesystem::path end_of_links(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // the kernel's limit
  std::error_code error;
  fs::path end = fs::absolute(path);
  for (int links = 0; fs::is_symlink(end, error); ++links) {
    check(links < kMostLinks, "{} leads through more than {} symbolic links", path.string(), kMostLinks);
    const fs::path target = fs::read_symlink(end, error);
    check(!error, "{} cannot be followed: {}", end.string(), error.message());
    end = end.parent_path() / target;
  }
  return end;
}

namespace {

constexpr std::string_view kNewFile = "new";

}  // namespace

FileReplacement::FileReplacement(const std::filesystem::path& path, Links links)
    : file_(links == Links::Followed ? end_of_links(path) : std::filesystem::absolute(path)),
      scratch_(std::make_unique<ScratchFolder>(file_)),
      out_(scratch_->file(kNewFile), File::Mode::Create) {}

FileReplacement::~FileReplacement() = default;

void FileReplacement::write(std::string_view bytes) {
  out_.write(bytes.data(), bytes.size(), written_);
  written_ += static_cast<int64_t>(bytes.size());
}

// Some file systems refuse to change permissions; the file then keeps the default ones.
void FileReplacement::finish() {
  namespace fs = std::filesystem;
  out_.sync();
  out_.close();
  std::error_code error;
  const fs::path fresh = scratch_->file(kNewFile);
  const fs::file_status old = fs::symlink_status(file_, error);
  if (fs::is_regular_file(old)) fs::permissions(fresh, old.permissions(), error);
  ScratchFolder::protect([&] { fs::rename(fresh, file_, error); });
  check(!error, "{} cannot be replaced: {}", file_.string(), error.message());
  scratch_.reset();
  sync_to_disk(file_.parent_path());
}

void replace_text(const std::filesystem::path& path, std::string_view text, Links links) {
  FileReplacement file(path, links);
  file.write(text);
  file.finish();
}

void sync_to_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor >= 0, "{} cannot be opened: {}", path.string(), std::strerror(errno));
  const int failed = [&] {
    const DiskWait waits(path.native());
    return sync_call.load()(descriptor) == 0 ? 0 : errno;
  }();
  ::close(descriptor);
  check(failed == 0, "{} cannot be synced: {}", path.string(), std::strerror(failed));
}

void set_sync_call(SyncCall call) { sync_call.store(call); }

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace trifold
