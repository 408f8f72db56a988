#include "files/packed_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "files/archive_handle.h"
#include "files/raw_file.h"

namespace trifold {

namespace {

constexpr size_t kPackedInput = size_t{1} << 18;

struct PackedForm {
  const char* name;
  int filter;  // libarchive's code
};

PackedForm form_of(Packing packing) {
  switch (packing) {
    case Packing::Zstd:
      return {"zstd", ARCHIVE_FILTER_ZSTD};
    case Packing::Xz:
      return {"xz", ARCHIVE_FILTER_XZ};
    case Packing::Bzip2:
      return {"bzip2", ARCHIVE_FILTER_BZIP2};
    case Packing::None:
    case Packing::Gzip:
      break;
  }
  fail("libarchive does not read this packing here");
}

// Reads with libarchive. The filter is set, not guessed from the content: an "x.xz" that contains something else is a
// mistake, and xz data within "x.xz" stay as they are. The archive has one entry, the whole text ("raw"), or none if
// the text is empty.
class PackedReader final : public ByteReader {
 public:
  PackedReader(const std::string& path, PackedForm form)
      : file_(path, RawFile::Mode::Read), size_(file_.size()), form_(form), archive_(archive_read_new()) {
    expect_few_zeros();
    archive* opened = archive_.get();
    check(opened != nullptr, "{}: libarchive has no memory", path);
    check(archive_read_append_filter(opened, form.filter) == ARCHIVE_OK &&
              archive_read_support_format_raw(opened) == ARCHIVE_OK &&
              archive_read_support_format_empty(opened) == ARCHIVE_OK,
          "{}: this libarchive does not read {} files", path, form.name);
    // libarchive reports a mistake in the first bytes in the call that reads them, but not in its result: the
    // text then looks empty.
    const int status = archive_read_open_fd(opened, file_.descriptor(), kPackedInput);
    if (status != ARCHIVE_OK || archive_errno(opened) != 0 || size_ == 0) refuse();
    archive_entry* entry = nullptr;
    const int found = archive_read_next_header(opened, &entry);
    if (found != ARCHIVE_OK && found != ARCHIVE_EOF) refuse();
    ended_ = found == ARCHIVE_EOF;
    if (ended_) expect_end();
  }

  size_t read(std::span<char> out) override {
    if (ended_ || out.empty()) return 0;
    const la_ssize_t count = archive_read_data(archive_.get(), out.data(), out.size());
    if (count < 0) refuse();
    ended_ = static_cast<size_t>(count) < out.size();
    if (ended_) expect_end();
    return static_cast<size_t>(count);
  }

 private:
  // Rejects too many zeros after the data; libarchive does not return from padding before its end.
  void expect_few_zeros() const {
    std::array<char, 4096> block{};
    int64_t at = size_;
    while (at > 0 && size_ - at <= kMostZeros) {
      const auto end = std::span(block).first(static_cast<size_t>(std::min(at, std::ssize(block))));
      at -= std::ssize(end);
      file_.read(std::as_writable_bytes(end), at);
      if (std::any_of(end.begin(), end.end(), [](char c) { return c != 0; })) return;
    }
    if (size_ - at > kMostZeros)
      bad_input("{}: more than {} zero bytes follow its {} data: create it again, or leave it out",
                file_.path(), kMostZeros, form_.name);
  }

  // Bytes of the file that were decompressed.
  int64_t taken() const { return archive_filter_bytes(archive_.get(), -1); }

  // Checks the end of the file, because libarchive ignores bytes after the last bzip2 stream.
  void expect_end() const {
    if (taken() < size_)
      bad_input(
          "{} is a damaged {} file (from byte {} on it is not {} data): create it again, or leave it out",
          file_.path(), form_.name, taken(), form_.name);
  }

  // The position of bytes after the last xz stream that are too few for a stream header; nullopt if the file does not
  // end like that. libarchive reports them as a truncated stream.
  std::optional<int64_t> bytes_behind_xz() const {
    constexpr std::string_view kFooterEnd = "YZ", kBegin{"\3757zXZ\0", 6};
    constexpr int64_t kHeader = 12;
    if (form_.filter != ARCHIVE_FILTER_XZ) return std::nullopt;
    std::string tail(static_cast<size_t>(std::min(size_, kHeader + std::ssize(kFooterEnd))), '\0');
    file_.read(std::as_writable_bytes(std::span(tail)), size_ - std::ssize(tail));
    const size_t end = tail.rfind(kFooterEnd);
    if (end == std::string::npos) return std::nullopt;
    const std::string_view behind = std::string_view(tail).substr(end + kFooterEnd.size());
    const size_t shared = std::min(behind.size(), kBegin.size());
    if (behind.empty() || behind.substr(0, shared) == kBegin.substr(0, shared)) return std::nullopt;
    return size_ - std::ssize(behind);
  }

  [[noreturn]] void refuse() const {
    const char* text = archive_error_string(archive_.get());
    if (archive_errno(archive_.get()) == ENOMEM)
      bad_input(
          "{}: decompressing this {} file takes more memory than is available or allowed; compress it "
          "with a smaller dictionary",
          file_.path(), form_.name);
    if (const auto behind = bytes_behind_xz())
      bad_input(
          "{} is a damaged xz file (from byte {} on it is not xz data): create it again, or leave it out",
          file_.path(), *behind);
    if (taken() >= size_)
      bad_input(
          "{}: the {} file is truncated: it ends at byte {}, in the middle of its data; "
          "create it again, or leave it out",
          file_.path(), form_.name, size_);
    bad_input("{} is a damaged {} file ({}, at byte {}): create it again, or leave it out", file_.path(),
              form_.name, text != nullptr ? text : "unreadable", taken());
  }

  RawFile file_;
  int64_t size_;
  PackedForm form_;
  ArchiveHandle archive_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteReader> open_packed(const std::string& path, Packing packing) {
  return std::make_unique<PackedReader>(path, form_of(packing));
}

}  // namespace trifold
