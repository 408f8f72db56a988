// File reads and writes at any offset. Also: checksums of files, text files, and syncing written data to the disk. All
// errors name the file and the system's reason. For scratch files see files/raw_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

class ScratchFolder;

// A file open for reading or writing; the destructor closes it and ignores errors.
class File {
 public:
  enum class Mode {
    Read,      // a file named by the user: failing to open it is BadInput
    ReadBack,  // a file written by this program: failing to open it is a Failure, also for the modes below
    Change,    // an existing file to be changed
    Create,    // a new file, which must not exist
  };
  File(std::filesystem::path path, Mode mode);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  // Reads exactly `bytes` bytes at `offset`; throws Error if the file ends earlier.
  void read(void* to, size_t bytes, int64_t offset) const;
  void write(const void* from, size_t bytes, int64_t offset) const;
  // Announces that these bytes will be read soon, so that the system can prefetch them.
  void expect(size_t bytes, int64_t offset) const;
  void resize(int64_t bytes) const;
  // Reserves disk space for the first `bytes` bytes if the file system can, so that a full disk is found before
  // anything is written.
  void reserve(int64_t bytes) const;
  // Waits until the content is on the disk; the wait is visible to other ranks (core/host_thread.h).
  void sync() const;
  void close();

 private:
  std::filesystem::path path_;
  int fd_;
};

// CRC-32 as in zlib, gzip and PNG.
uint32_t crc_of_memory(const void* data, size_t bytes);

// The checksum of bytes added piece by piece, and the checksum of each block of `block` bytes.
class BlockCrc {
 public:
  explicit BlockCrc(size_t block) : block_(block) {}
  void add(const void* data, size_t bytes);
  int64_t bytes() const { return bytes_; }
  // The checksum of each block so far; the last block may be short.
  std::vector<uint32_t> blocks() const;
  uint32_t whole() const;

 private:
  size_t block_;
  int64_t bytes_ = 0;
  std::vector<uint32_t> full_;  // checksums of the full blocks
  uint32_t open_ = 0;           // checksum of the block that is not full
};

// Bytes of a file whose checksum is known without reading them back.
struct KnownRegion {
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t crc = 0;
};

// The CRC of a whole file, computed from the checksums of `known` (ordered, disjoint) and the bytes between them, which
// alone are read. Computed after a write, it is the CRC of the intended content, so that the next reader detects a byte
// that was corrupted while it was written.
uint32_t crc_of_file(const File& file, std::span<const KnownRegion> known = {});

// The CRC of all bytes before, between and after `around` (ordered, disjoint), as stored in the file now.
uint32_t crc_of_rest(const File& file, std::span<const KnownRegion> around);

// The CRC of bytes [begin, begin + bytes) as stored in the file now.
uint32_t crc_of_file_range(const File& file, int64_t begin, int64_t bytes);

// The first bytes of a file, at most `most`, for a message; empty if it cannot be read. A whole file is read by
// read_input_file (core/input_file.h).
std::string first_bytes(const std::filesystem::path& path, size_t most);

// Writes a new file and waits until it is on the disk.
void write_text(const std::filesystem::path& path, std::string_view text);

// The absolute path of the file to which a path leads through symbolic links; the file need not exist.
std::filesystem::path end_of_links(const std::filesystem::path& path);

// The treatment of a symbolic link whose path is to be replaced.
enum class Links {
  Followed,  // the file to which it leads is replaced
  Replaced,  // the link is replaced by a file
};

// Replaces the content of a file, or creates the file, piece by piece. Readers see either the old or the new content as
// a whole, even after a crash: the bytes are written to a file in a scratch folder next to it (files/scratch_folder.h),
// which is renamed once it is on the disk. Permissions are kept if the file system can. Unless `finish` returns, the
// old content is untouched and the new file is removed.
class FileReplacement {
 public:
  explicit FileReplacement(const std::filesystem::path& path, Links links = Links::Followed);
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  void write(std::string_view bytes);
  // Call once, after the last piece.
  void finish();

 private:
  std::filesystem::path file_;
  std::unique_ptr<ScratchFolder> scratch_;
  File out_;
  int64_t written_ = 0;
};

// Replaces a file, as FileReplacement does, by `text`.
void replace_text(const std::filesystem::path& path, std::string_view text, Links links = Links::Followed);

// Waits until a file, or the list of names in a directory, is on the disk.
void sync_to_disk(const std::filesystem::path& path);

// Replaces fsync(2) in all threads from now on; for tests.
using SyncCall = int (*)(int file);
void set_sync_call(SyncCall call);

// Sixteen random hexadecimal digits.
std::string random_id();

}  // namespace trifold
