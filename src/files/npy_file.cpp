#include "files/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

// The text after `key` in the header, a Python dictionary; empty if the key is missing.
std::string_view value_of_key(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

// Parses a tuple of sizes: "(3, 13), ..." gives 3, 13. nullopt for anything else.
std::optional<std::vector<int64_t>> sizes_of(std::string_view text) {
  const size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  text = text.substr(1, end - 1);
  std::vector<int64_t> sizes;
  while (!text.empty()) {
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0) return std::nullopt;
    sizes.push_back(size);
    text.remove_prefix(static_cast<size_t>(stop - text.data()));
    const size_t next = text.find_first_not_of(", ");
    if (next == 0) return std::nullopt;
    text.remove_prefix(std::min(next, text.size()));
  }
  return sizes;
}

}  // namespace

NpyHeader::NpyHeader(std::string_view beginning, int64_t bytes, const std::string& name) {
  constexpr size_t kVersion = kNpyMagic.size();
  if (!beginning.starts_with(kNpyMagic) || beginning.size() < kVersion + 4)
    bad_input("{} is not an array of NumPy's format .npy", name);
  const int version = static_cast<uint8_t>(beginning[kVersion]);
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3)
    bad_input("{} has version {} of the format .npy; versions 1 to 3 are read", name, version);
  const size_t begin = kVersion + 2 + length_bytes;
  size_t length = 0;
  for (size_t i = begin; i-- > kVersion + 2;)
    length = length << 8 | static_cast<uint8_t>(beginning[std::min(i, beginning.size() - 1)]);
  if (beginning.size() < begin || beginning.size() - begin < length) {
    if (length > kMostBytes - begin) bad_input("{} is damaged: its header claims {} bytes", name, length);
    bad_input("{} is truncated: it ends inside its header", name);
  }
  const std::string_view header = beginning.substr(begin, length);
  first_ = static_cast<int64_t>(begin + length);

  const std::string_view type = value_of_key(header, "descr");
  if (type.empty()) bad_input("{} is damaged: its header has no type of elements (descr)", name);
  const bool known = type.size() >= 5 && type[0] == '\'' && type[4] == '\'' &&
                     (type[1] == '<' || (type[1] == '|' && type[3] == '1'));
  if (known) kind_ = type[2], size_ = type[3] - '0';
  const bool whole = (kind_ == 'i' || kind_ == 'u') && (size_ == 1 || size_ == 2 || size_ == 4 || size_ == 8);
  const bool real = kind_ == 'f' && (size_ == 2 || size_ == 4 || size_ == 8);
  if (!whole && !real && !(kind_ == 'b' && size_ == 1))
    bad_input(
        "{}: its elements are {}, not little-endian integers, booleans or floats of 2, 4 or 8 bytes: save it with "
        "numpy's astype(\"<f4\") or astype(\"<i8\")",
        name, printable(type.substr(0, type.find(','))));
  if (!value_of_key(header, "fortran_order").starts_with("False"))
    bad_input("{}: its order is Fortran's: save it with numpy.ascontiguousarray", name);
  const auto shape = sizes_of(value_of_key(header, "shape"));
  if (!shape) bad_input("{}: its header has no shape", name);
  shape_ = *shape;
  const bool empty = std::find(shape_.begin(), shape_.end(), 0) != shape_.end();
  const int64_t room = bytes - first_;
  int64_t count = empty ? 0 : 1;
  for (const int64_t size : shape_) {
    if (!empty && count > room / size_ / size)
      bad_input("{} has room for {} elements, but its shape is {}: it is damaged", name, room / size_,
                shape_text());
    count *= size;
  }
  if (count * size_ != room)
    bad_input("{} has {} bytes of elements, but its shape {} needs {}: it is damaged", name, room,
              shape_text(), count * size_);
}

std::string NpyHeader::shape_text() const {
  return shape_.empty() ? "() (one number)" : fmt::format("{}", fmt::join(shape_, " x "));
}

int64_t NpyHeader::row_bytes() const {
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) return 0;
  int64_t bytes = size_;
  for (size_t d = 1; d < shape_.size(); ++d) bytes *= shape_[d];
  return bytes;
}

NpyFile::NpyFile(const std::string& path) : NpyRows(path), file_(path) {
  header_.emplace(file_.text().substr(0, NpyHeader::kMostBytes), file_.size(), path);
  at_ = header_->first();
}

std::span<const std::byte> NpyFile::next(int64_t count) {
  file_.release(released_, at_);
  released_ = at_;
  const int64_t bytes = count * header_->row_bytes();
  check(bytes <= file_.size() - at_, "{}: {} rows beyond the last one are read", name(), count);
  at_ += bytes;
  return file_.bytes().subspan(static_cast<size_t>(released_), static_cast<size_t>(bytes));
}

// The header is padded with spaces so that the elements begin at a multiple of 64 bytes, as NumPy writes it.
std::string npy_content(std::span<const double> numbers) {
  constexpr size_t kAlignment = 64, kBefore = 10;  // bytes before the header's text
  std::string header =
      fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", numbers.size());
  header.resize((kBefore + header.size() + kAlignment) / kAlignment * kAlignment - kBefore - 1, ' ');
  header += '\n';
  std::string content(kNpyMagic);
  content += {'\x01', '\0', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  content += header;
  return content.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

}  // namespace trifold
