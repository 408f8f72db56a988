#include "files/npz_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "files/crc32.h"

namespace trifold {

namespace {

// The structures of a zip archive (PKWARE's APPNOTE): their signatures, and bytes before what has no fixed size.
constexpr uint32_t kZipEnd = 0x06054b50, kZip64Place = 0x07064b50, kZip64End = 0x06064b50;
constexpr uint32_t kZipEntry = 0x02014b50, kZipMember = 0x04034b50;
constexpr size_t kZipEndBytes = 22, kZip64PlaceBytes = 20, kZip64EndBytes = 56, kZipEntryBytes = 46,
                 kZipMemberBytes = 30;
constexpr size_t kMostComment = 65535;
constexpr uint16_t kZip64Field = 1;
constexpr int kStored = 0, kDeflated = 8;
constexpr std::string_view kEnding = ".npy";

template <class T>
T number_at(std::string_view text, size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

bool starts(std::string_view text, uint64_t at, uint32_t signature, size_t bytes) {
  return at <= text.size() && text.size() - at >= bytes && number_at<uint32_t>(text, at) == signature;
}

// An array within an archive. Bytes are unpacked, counted and summed as its rows are asked for.
class NpzRows : public NpyRows {
 public:
  std::span<const std::byte> next(int64_t count) final {
    const int64_t row = header().row_bytes();
    check(count <= header().rows() - given_, "{}: {} rows more than there are", name(), count);
    given_ += count;
    const std::span<const std::byte> rows = take(static_cast<size_t>(count * row));
    crc_ = crc32_of(crc_, rows.data(), rows.size());
    if (given_ == header().rows() && crc_ != wanted_crc_)
      bad_input("{}: its checksum differs from that in the archive: it is damaged", name());
    return rows;
  }

 protected:
  NpzRows(std::string name, uint32_t wanted_crc) : NpyRows(std::move(name)), wanted_crc_(wanted_crc) {}
  // The next bytes, which are there; until the next call.
  virtual std::span<const std::byte> take(size_t bytes) = 0;
  // To be called by constructors, when take() gives what is behind the header.
  void begin(std::string_view beginning, int64_t bytes) {
    header_.emplace(beginning.substr(0, NpyHeader::kMostBytes), bytes, name());
    crc_ = crc32_of(0, beginning.data(), static_cast<size_t>(header_->first()));
  }

 private:
  uint32_t wanted_crc_;
  uint32_t crc_ = 0;
  int64_t given_ = 0;
};

class StoredRows final : public NpzRows {
 public:
  StoredRows(const std::string& name, uint32_t crc, const MappedFile& file, std::string_view data)
      : NpzRows(name, crc), file_(file), data_(data), first_(data.data() - file.text().data()) {
    begin(data, std::ssize(data));
    at_ = static_cast<size_t>(header().first());
  }

 private:
  std::span<const std::byte> take(size_t bytes) override {
    file_.release(first_ + static_cast<int64_t>(released_), first_ + static_cast<int64_t>(at_));
    released_ = at_;
    const std::string_view part = data_.substr(at_, bytes);
    at_ += bytes;
    return std::as_bytes(std::span(part));
  }

  const MappedFile& file_;
  std::string_view data_;
  int64_t first_;  // byte of the data in the file
  size_t at_ = 0;
  size_t released_ = 0;  // of what the system may forget
};

class DeflatedRows final : public NpzRows {
 public:
  DeflatedRows(const std::string& name, uint32_t crc, std::string_view packed, int64_t bytes)
      : NpzRows(name, crc), packed_(packed) {
    // Negative: without a frame of zlib's.
    check(inflateInit2(&state_, -15) == Z_OK, "{}: zlib has no memory", name);
    begin_.resize(static_cast<size_t>(std::min<int64_t>(bytes, NpyHeader::kMostBytes)));
    try {
      fill(std::as_writable_bytes(std::span(begin_)));
      begin(begin_, bytes);
    } catch (...) {
      inflateEnd(&state_);
      throw;
    }
    begun_ = static_cast<size_t>(header().first());
  }
  ~DeflatedRows() override { inflateEnd(&state_); }
  DeflatedRows(const DeflatedRows&) = delete;
  DeflatedRows& operator=(const DeflatedRows&) = delete;

 private:
  // First what was unpacked to find the header.
  std::span<const std::byte> take(size_t bytes) override {
    rows_.resize(bytes);
    if (bytes == 0) return {};
    const size_t ready = std::min(bytes, begin_.size() - begun_);
    std::memcpy(rows_.data(), begin_.data() + begun_, ready);
    begun_ += ready;
    fill(std::span(rows_).subspan(ready));
    return rows_;
  }

  void fill(std::span<std::byte> out) {
    while (!out.empty()) {
      constexpr size_t kMost = std::numeric_limits<uInt>::max();
      const auto in = static_cast<uInt>(std::min(kMost, packed_.size()));
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed_.data()));
      state_.avail_in = in;
      state_.next_out = reinterpret_cast<Bytef*>(out.data());
      state_.avail_out = static_cast<uInt>(std::min(kMost, out.size()));
      const uInt room = state_.avail_out;
      const int status = inflate(&state_, Z_NO_FLUSH);
      packed_.remove_prefix(in - state_.avail_in);
      const uInt made = room - state_.avail_out;
      out = out.subspan(made);
      if (status == Z_STREAM_END && out.empty()) return;
      if ((status != Z_OK && status != Z_BUF_ERROR) || (made == 0 && state_.avail_in == in))
        bad_input("{}: is damaged: it cannot be unpacked ({})", name(),
                  status == Z_STREAM_END || status == Z_OK || status == Z_BUF_ERROR ? "it ends too early"
                  : state_.msg != nullptr                                           ? state_.msg
                                                                                    : zError(status));
    }
  }

  z_stream state_{};
  std::string_view packed_;  // what is left of it
  std::string begin_;
  size_t begun_ = 0;
  std::vector<std::byte> rows_;
};

}  // namespace

NpzFile::NpzFile(const std::string& path) : file_(path) { read_directory(); }

void NpzFile::read_directory() {
  const std::string_view text = file_.text();
  if (text.size() < kZipEndBytes || !(text.starts_with("PK\3\4") || text.starts_with("PK\5\6")))
    bad_input("{}: is not a file of NumPy's format .npz, a zip archive", path());
  // The archive's end is known by its signature; a comment may follow.
  size_t end = text.size() - kZipEndBytes;
  const size_t first = end - std::min(end, kMostComment);
  while (end > first && !starts(text, end, kZipEnd, kZipEndBytes)) --end;
  if (!starts(text, end, kZipEnd, kZipEndBytes))
    bad_input("{}: the zip archive has no directory at its end: the file is truncated, or damaged", path());
  uint64_t count = number_at<uint16_t>(text, end + 10);
  uint64_t at = number_at<uint32_t>(text, end + 16);
  if (end >= kZip64PlaceBytes && starts(text, end - kZip64PlaceBytes, kZip64Place, kZip64PlaceBytes)) {
    const auto place = number_at<uint64_t>(text, end - kZip64PlaceBytes + 8);
    if (!starts(text, place, kZip64End, kZip64EndBytes))
      bad_input("{}: the directory of the zip archive (ZIP64) is not where its end says: it is damaged",
                path());
    count = number_at<uint64_t>(text, place + 32);
    at = number_at<uint64_t>(text, place + 48);
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (!starts(text, at, kZipEntry, kZipEntryBytes))
      bad_input("{}: entry {} of the {} in the zip archive's directory is damaged", path(), i, count);
    const uint64_t bytes = kZipEntryBytes + number_at<uint16_t>(text, at + 28) +
                           number_at<uint16_t>(text, at + 30) + number_at<uint16_t>(text, at + 32);
    if (text.size() - at < bytes)
      bad_input("{}: entry {} of the {} in the zip archive's directory is truncated", path(), i, count);
    members_.push_back(read_member(text.substr(at, bytes)));
    at += bytes;
  }
}

// An entry of the directory. Sizes that need more than 32 bits are in a field of their own.
NpzFile::Member NpzFile::read_member(std::string_view entry) const {
  Member member;
  const size_t name_bytes = number_at<uint16_t>(entry, 28);
  member.encrypted = (number_at<uint16_t>(entry, 8) & 1) != 0;
  member.method = number_at<uint16_t>(entry, 10);
  member.crc = number_at<uint32_t>(entry, 16);
  member.packed = number_at<uint32_t>(entry, 20);
  member.bytes = number_at<uint32_t>(entry, 24);
  member.header = number_at<uint32_t>(entry, 42);
  std::string_view name = entry.substr(kZipEntryBytes, name_bytes);
  if (name.ends_with(kEnding)) name.remove_suffix(kEnding.size());
  member.name = name;
  std::string_view fields = entry.substr(kZipEntryBytes + name_bytes, number_at<uint16_t>(entry, 30));
  while (fields.size() >= 4) {
    const auto kind = number_at<uint16_t>(fields, 0);
    const size_t bytes = std::min<size_t>(number_at<uint16_t>(fields, 2), fields.size() - 4);
    std::string_view field = fields.substr(4, bytes);
    fields.remove_prefix(4 + bytes);
    if (kind != kZip64Field) continue;
    for (uint64_t* size : {&member.bytes, &member.packed, &member.header}) {
      if (*size != std::numeric_limits<uint32_t>::max() || field.size() < sizeof(uint64_t)) continue;
      *size = number_at<uint64_t>(field, 0);
      field.remove_prefix(sizeof(uint64_t));
    }
  }
  return member;
}

std::string_view NpzFile::data_of(const Member& member) const {
  const std::string_view text = file_.text();
  const auto damaged = [&] {
    bad_input("{}: {} is not where the zip archive's directory says: the file is damaged", path(),
              printable(member.name));
  };
  if (!starts(text, member.header, kZipMember, kZipMemberBytes)) damaged();
  const uint64_t begin = member.header + kZipMemberBytes + number_at<uint16_t>(text, member.header + 26) +
                         number_at<uint16_t>(text, member.header + 28);
  if (begin > text.size() || text.size() - begin < member.packed) damaged();
  return text.substr(begin, member.packed);
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

bool NpzFile::has(std::string_view name) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.name == name; });
}

std::unique_ptr<NpyRows> NpzFile::open(std::string_view name) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& member) { return member.name == name; });
  if (found == members_.end())
    bad_input("{}: has no array {}; there are {}", path(), name,
              printable(fmt::format("{}", fmt::join(names(), ", "))));
  const std::string shown = fmt::format("{}: {}", path(), name);
  if (found->encrypted) bad_input("{}: is encrypted, which is not read", shown);
  if (found->method != kStored && found->method != kDeflated)
    bad_input("{}: is packed by method {} of zip archives; stored and deflated arrays are read", shown,
              found->method);
  const std::string_view data = data_of(*found);
  if (found->method == kStored) {
    if (found->packed != found->bytes)
      bad_input("{}: has two sizes, {} and {}: it is damaged", shown, found->packed, found->bytes);
    return std::make_unique<StoredRows>(shown, found->crc, file_, data);
  }
  // Deflate packs at most 1032 bytes into one: what claims more is damaged.
  if (found->bytes / 1032 > found->packed)
    bad_input("{}: is damaged: {} bytes cannot hold {}", shown, found->packed, found->bytes);
  return std::make_unique<DeflatedRows>(shown, found->crc, data, static_cast<int64_t>(found->bytes));
}

}  // namespace trifold
