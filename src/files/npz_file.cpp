#include "files/npz_file.h"

#include <archive_entry.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "files/archive_handle.h"
#include "files/raw_file.h"

namespace trifold {

namespace {

constexpr size_t kZipBlock = size_t{1} << 18;  // bytes read at a time
constexpr std::string_view kEnding = ".npy";
constexpr int64_t kMostDeflated = 1032;  // bytes that one byte of deflated data can hold

std::string text_of(archive* opened) {
  const char* text = archive_error_string(opened);
  return printable(text != nullptr ? text : "unreadable");
}

// Opens a separate reader, so that several arrays can be read at the same time. It needs the directory at the archive's
// end; without it, libarchive would read the members that it finds from the beginning on.
ArchiveHandle open_archive(const std::string& path) {
  ArchiveHandle opened(archive_read_new());
  check(opened != nullptr && archive_read_support_format_zip_seekable(opened.get()) == ARCHIVE_OK,
        "{}: libarchive has no memory, or does not read zip archives", path);
  if (archive_read_open_filename(opened.get(), path.c_str(), kZipBlock) != ARCHIVE_OK)
    bad_input("{}: the zip archive has no directory at its end: the file is truncated, or damaged ({})", path,
              text_of(opened.get()));
  return opened;
}

// The next member; null after the last.
archive_entry* next_member(archive* opened, const std::string& path) {
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(opened, &entry);
  if (status == ARCHIVE_EOF) return nullptr;
  // Other warnings are about names that the locale cannot show.
  if (status == ARCHIVE_WARN && text_of(opened).starts_with("Inconsistent"))
    bad_input("{}: the zip archive is damaged ({})", path, text_of(opened));
  if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
    bad_input("{}: the directory of the zip archive is damaged ({})", path, text_of(opened));
  return entry;
}

std::string name_of(archive_entry* entry) {
  const char* text = archive_entry_pathname_utf8(entry);
  if (text == nullptr) text = archive_entry_pathname(entry);
  std::string name(text != nullptr ? text : "");
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return name;
}

// An array within an archive, unpacked as its rows are read.
class NpzRows final : public NpyRows {
 public:
  NpzRows(std::string name, ArchiveHandle opened, int64_t bytes)
      : NpyRows(std::move(name)), archive_(std::move(opened)) {
    beginning_.resize(static_cast<size_t>(std::min(bytes, int64_t{NpyHeader::kMostBytes})));
    fill(std::as_writable_bytes(std::span(beginning_)));
    header_.emplace(beginning_, bytes, this->name());
    used_ = static_cast<size_t>(header_->first());
  }

  std::span<const std::byte> next(int64_t count) override {
    check(count <= header().rows() - given_, "{}: {} rows beyond the last one are read", name(), count);
    given_ += count;
    rows_.resize(static_cast<size_t>(count * header().row_bytes()));
    // First the bytes that were unpacked to find the header.
    const size_t ready = std::min(rows_.size(), beginning_.size() - used_);
    std::copy_n(std::as_bytes(std::span(beginning_)).data() + used_, ready, rows_.data());
    used_ += ready;
    fill(std::span(rows_).subspan(ready));
    if (given_ == header().rows()) expect_end();
    return rows_;
  }

 private:
  void fill(std::span<std::byte> out) {
    if (out.empty()) return;
    const la_ssize_t count = archive_read_data(archive_.get(), out.data(), out.size());
    if (count < 0) bad_input("{} cannot be read: {}", name(), text_of(archive_.get()));
    if (static_cast<size_t>(count) < out.size()) bad_input("{} is damaged: it ends too early", name());
  }

  // Reads beyond the last row, because libarchive compares sizes and checksum with the directory's only then.
  void expect_end() {
    std::array<std::byte, 1> more{};
    const la_ssize_t count = archive_read_data(archive_.get(), more.data(), more.size());
    if (count < 0) bad_input("{} is damaged: {}", name(), text_of(archive_.get()));
    if (count > 0) bad_input("{} is damaged: it has more bytes than the archive's directory says", name());
  }

  ArchiveHandle archive_;
  std::string beginning_;
  size_t used_ = 0;  // bytes of it that were returned
  int64_t given_ = 0;
  std::vector<std::byte> rows_;
};

}  // namespace

NpzFile::NpzFile(const std::string& path) : path_(path) {
  const RawFile file(path, RawFile::Mode::Read);
  bytes_ = file.size();
  std::array<char, 4> start{};
  if (bytes_ >= std::ssize(start)) file.read(std::as_writable_bytes(std::span(start)), 0);
  const std::string_view text(start.data(), start.size());
  if (text != "PK\3\4" && text != "PK\5\6")
    bad_input("{} is not a file of NumPy's format .npz, a zip archive", path);
  const ArchiveHandle opened = open_archive(path);
  while (archive_entry* entry = next_member(opened.get(), path)) names_.push_back(name_of(entry));
}

bool NpzFile::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::unique_ptr<NpyRows> NpzFile::open(std::string_view name) const {
  ArchiveHandle opened = open_archive(path_);
  archive_entry* entry = next_member(opened.get(), path_);
  while (entry != nullptr && name_of(entry) != name) entry = next_member(opened.get(), path_);
  if (entry == nullptr)
    bad_input("{} has no array {}; there are {}", path_, name,
              printable(fmt::format("{}", fmt::join(names_, ", "))));
  const std::string shown = fmt::format("{}: {}", path_, name);
  if (archive_entry_is_encrypted(entry) != 0) bad_input("{} is encrypted, which is not supported", shown);
  const int64_t bytes = archive_entry_size(entry);
  if (bytes < 0 || bytes / kMostDeflated > bytes_)
    bad_input("{} is damaged: a file of {} bytes cannot hold {}", shown, bytes_, bytes);
  return std::make_unique<NpzRows>(shown, std::move(opened), bytes);
}

}  // namespace trifold
