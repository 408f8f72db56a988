#include "files/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "core/printable.h"
#include "files/crc32.h"

namespace trifold {

namespace {

// Sizes of the format's records without their names, extra fields and comments, and their signatures.
constexpr int64_t kEndBytes = 22, kEnd64LocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46,
                  kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64LocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                   kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr int64_t kMostComment = 65535;
constexpr int64_t kMostDirectory = int64_t{64} << 20;
constexpr size_t kMostName = 4096;
constexpr uint16_t kExtra64 = 1;        // the extra field with 64-bit sizes
constexpr uint32_t kIn64 = 0xffffffff;  // a size or offset that is in that field instead
constexpr uint16_t kEncrypted = 1;      // a bit of the flags
constexpr size_t kVerifyBytes = size_t{1} << 20;

// Little-endian numbers within `text`, whose size the caller has checked.
uint64_t number_at(std::string_view text, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  return value;
}
uint16_t u16(std::string_view text, size_t at) { return static_cast<uint16_t>(number_at(text, at, 2)); }
uint32_t u32(std::string_view text, size_t at) { return static_cast<uint32_t>(number_at(text, at, 4)); }
// 64 bits that count bytes of a file; what is no such count becomes negative, and fails the checks of the callers.
int64_t i64(std::string_view text, size_t at) { return static_cast<int64_t>(number_at(text, at, 8)); }

[[noreturn]] void damaged(const std::string& path, std::string_view why) {
  bad_input("{}: the zip archive is truncated or damaged: {}", path, why);
}

std::string bytes_at(const RawFile& file, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(std::as_writable_bytes(std::span(text)), offset);
  return text;
}

struct Directory {
  int64_t begin = 0, bytes = 0;  // in the file
};

// The directory by the ZIP64 records in front of the end record at `end`; none if there are no such records.
std::optional<Directory> find_directory64(const RawFile& file, int64_t end) {
  if (end < kEnd64LocatorBytes + kEnd64Bytes) return std::nullopt;
  const std::string locator = bytes_at(file, end - kEnd64LocatorBytes, kEnd64LocatorBytes);
  if (u32(locator, 0) != kEnd64LocatorMark) return std::nullopt;
  const int64_t at = i64(locator, 8);
  if (at < 0 || at > end - kEnd64LocatorBytes - kEnd64Bytes)
    damaged(file.path(), "its ZIP64 record is outside the file");
  const std::string record = bytes_at(file, at, kEnd64Bytes);
  if (u32(record, 0) != kEnd64Mark) damaged(file.path(), "it has no ZIP64 record where one should be");
  return Directory{i64(record, 48), i64(record, 40)};
}

// The directory, which lies before the end record: the last one of the file that its comment, up to the file's end,
// fits.
Directory find_directory(const RawFile& file, int64_t bytes) {
  const int64_t tail = std::min(bytes, kEndBytes + kMostComment);
  const std::string text = bytes_at(file, bytes - tail, tail);
  for (int64_t at = tail - kEndBytes; at >= 0; --at) {
    const auto begin = static_cast<size_t>(at);
    if (u32(text, begin) != kEndMark || u16(text, begin + 20) != tail - at - kEndBytes) continue;
    const int64_t end = bytes - tail + at;
    Directory directory{u32(text, begin + 16), u32(text, begin + 12)};
    if (const auto larger = find_directory64(file, end)) directory = *larger;
    if (directory.begin < 0 || directory.bytes < 0 || directory.begin > end ||
        directory.bytes > end - directory.begin)
      damaged(file.path(), "its directory is outside the file");
    if (directory.bytes > kMostDirectory)
      bad_input("{}: the directory of the zip archive has {} bytes; at most {} are allowed", file.path(),
                directory.bytes, kMostDirectory);
    return directory;
  }
  damaged(file.path(), "there is no directory at its end");
}

// Takes the sizes and the offset of an entry that are in its ZIP64 field, in the format's order.
void take_extra64(std::string_view extra, ZipMember& member, const std::string& path) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t bytes = u16(extra, at + 2);
    if (bytes > extra.size() - at - 4) damaged(path, "an extra field ends too late");
    std::string_view field = extra.substr(at + 4, bytes);
    at += 4 + bytes;
    if (u16(extra, at - 4 - bytes) != kExtra64) continue;
    for (int64_t* value : {&member.bytes, &member.packed_bytes, &member.offset}) {
      if (*value != kIn64) continue;
      if (field.size() < 8) damaged(path, "a ZIP64 field is too short");
      *value = i64(field, 0);
      field.remove_prefix(8);
    }
    return;
  }
}

bool leaves_folder(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != name.npos || name.find('\0') != name.npos)
    return true;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

// The entry at the beginning of `rest`, which is moved to the next one. `offset` of the member is its local header's.
ZipMember take_entry(std::string_view& rest, const std::string& path) {
  if (std::ssize(rest) < kEntryBytes || u32(rest, 0) != kEntryMark) damaged(path, "its directory is not one");
  const size_t name = u16(rest, 28), extra = u16(rest, 30), comment = u16(rest, 32);
  const size_t fixed = static_cast<size_t>(kEntryBytes);
  if (name + extra + comment > rest.size() - fixed) damaged(path, "an entry of its directory ends too late");
  ZipMember member;
  member.name = rest.substr(fixed, name);
  member.crc = u32(rest, 16);
  member.packed_bytes = u32(rest, 20);
  member.bytes = u32(rest, 24);
  member.offset = u32(rest, 42);
  take_extra64(rest.substr(fixed + name, extra), member, path);
  const std::string shown = printable(member.name);
  if (name > kMostName || leaves_folder(member.name))
    bad_input("{}: '{}' is not a name for a member of an archive", path, shown);
  const uint16_t method = u16(rest, 10);
  if ((u16(rest, 8) & kEncrypted) != 0)
    bad_input("{}: member '{}' is encrypted, which is not supported", path, shown);
  if (method != 0 && method != 8)
    bad_input("{}: member '{}' is compressed by method {}; 0 (stored) and 8 (deflate) are supported", path,
              shown, method);
  member.deflated = method == 8;
  if (!member.deflated && member.bytes != member.packed_bytes) damaged(path, "a stored member has two sizes");
  rest.remove_prefix(fixed + name + extra + comment);
  return member;
}

// Replaces the offset of the member's local header, which begins before `limit`, by that of its content.
void find_content(const RawFile& file, ZipMember& member, int64_t limit) {
  const std::string shown = printable(member.name);
  if (member.offset < 0 || member.offset > limit - kLocalBytes)
    damaged(file.path(), fmt::format("member '{}' is outside the file", shown));
  const std::string local = bytes_at(file, member.offset, kLocalBytes);
  const int64_t name = u16(local, 26);
  if (u32(local, 0) != kLocalMark || name != std::ssize(member.name))
    damaged(file.path(), fmt::format("member '{}' does not begin where the directory says", shown));
  member.offset += kLocalBytes + name + u16(local, 28);
  if (member.packed_bytes < 0 || member.bytes < 0 || member.offset > limit ||
      member.packed_bytes > limit - member.offset)
    damaged(file.path(), fmt::format("member '{}' ends outside the file", shown));
}

// Members over each other could make a small file unpack to any size.
void check_apart(std::vector<ZipMember>& members, const std::string& path) {
  const auto by_offset = [](const ZipMember& a, const ZipMember& b) { return a.offset < b.offset; };
  std::sort(members.begin(), members.end(), by_offset);
  for (size_t i = 1; i < members.size(); ++i)
    if (members[i - 1].offset + members[i - 1].packed_bytes > members[i].offset)
      damaged(path, fmt::format("members '{}' and '{}' overlap", printable(members[i - 1].name),
                                printable(members[i].name)));
}

bool name_before(const ZipMember& a, const ZipMember& b) { return a.name < b.name; }

// Exactly `bytes` bytes, of deflated data without a header. False if it is damaged, or has another number of them.
bool inflate_all(std::string_view packed, std::string& content) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("zlib has no memory");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(content.data());
  stream.avail_out = static_cast<uInt>(content.size());
  const int status = inflate(&stream, Z_FINISH);
  const bool whole = status == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
  inflateEnd(&stream);
  return whole;
}

}  // namespace

ZipFile::ZipFile(const std::string& path) : file_(path, RawFile::Mode::Read), bytes_(file_.size()) {
  if (bytes_ < 4 || !bytes_at(file_, 0, 4).starts_with("PK")) bad_input("{} is not a zip archive", path);
  if (bytes_ < kEndBytes) damaged(path, "there is no directory at its end");
  const Directory directory = find_directory(file_, bytes_);
  const std::string text = bytes_at(file_, directory.begin, directory.bytes);
  for (std::string_view rest = text; !rest.empty();) {
    members_.push_back(take_entry(rest, path));
    find_content(file_, members_.back(), directory.begin);
  }
  check_apart(members_, path);
  std::sort(members_.begin(), members_.end(), name_before);
  for (size_t i = 1; i < members_.size(); ++i)
    if (members_[i - 1].name == members_[i].name)
      bad_input("{}: the zip archive has two members '{}'", path, printable(members_[i].name));
}

const ZipMember* ZipFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(members_.begin(), members_.end(), name,
                       [](const ZipMember& member, std::string_view wanted) { return member.name < wanted; });
  return at != members_.end() && at->name == name ? &*at : nullptr;
}

const ZipMember& ZipFile::at(std::string_view name) const {
  const ZipMember* member = find(name);
  if (member == nullptr) bad_input("{}: the archive has no member '{}'", path(), printable(name));
  return *member;
}

std::string ZipFile::read(const ZipMember& member, int64_t most) const {
  const std::string shown = printable(member.name);
  if (member.bytes > most || member.packed_bytes > most)
    bad_input("{}: member '{}' has {} bytes; at most {} are allowed", path(), shown, member.bytes, most);
  std::string content = bytes_at(file_, member.offset, member.packed_bytes);
  if (member.deflated) {
    const std::string packed = std::move(content);
    content.assign(static_cast<size_t>(member.bytes), '\0');
    if (!inflate_all(packed, content)) damaged(path(), fmt::format("member '{}' cannot be unpacked", shown));
  }
  if (crc32_of(0, content.data(), content.size()) != member.crc)
    damaged(path(), fmt::format("member '{}' does not have its checksum", shown));
  return content;
}

void ZipFile::read_stored(const ZipMember& member, int64_t offset, std::span<std::byte> to) const {
  if (member.deflated)
    bad_input("{}: member '{}' is compressed; tensors must be stored", path(), printable(member.name));
  check(offset >= 0 && offset <= member.bytes && std::ssize(to) <= member.bytes - offset,
        "{}: bytes [{}, {}) are outside the {} of member '{}'", path(), offset, offset + std::ssize(to),
        member.bytes, printable(member.name));
  file_.read(to, member.offset + offset);
}

void ZipFile::verify(const ZipMember& member) const {
  std::vector<std::byte> block(kVerifyBytes);
  uint32_t crc = 0;
  for (int64_t at = 0; at < member.bytes;) {
    const auto part =
        std::span(block).first(static_cast<size_t>(std::min(std::ssize(block), member.bytes - at)));
    read_stored(member, at, part);
    crc = crc32_of(crc, part.data(), part.size());
    at += std::ssize(part);
  }
  if (crc != member.crc)
    damaged(path(), fmt::format("member '{}' does not have its checksum", printable(member.name)));
}

}  // namespace trifold
