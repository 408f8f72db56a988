#include "files/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

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

// "(3, 13), ..." -> 3, 13. nullopt for anything but a tuple of sizes.
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

NpyFile::NpyFile(const std::string& path) : file_(path) { read_header(); }

void NpyFile::read_header() {
  const std::string_view text = file_.text();
  constexpr size_t kVersion = kNpyMagic.size();
  if (!text.starts_with(kNpyMagic) || text.size() < kVersion + 4)
    bad_input("{}: is no array of NumPy's format .npy", path());
  const int version = text[kVersion];
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3)
    bad_input("{}: has version {} of the format .npy; versions 1 to 3 are read", path(), version);
  size_t length = 0;
  for (size_t i = length_bytes; i-- > 0;)
    length = length << 8 | static_cast<uint8_t>(text[std::min(kVersion + 2 + i, text.size() - 1)]);
  const size_t begin = kVersion + 2 + length_bytes;
  if (text.size() < begin || text.size() - begin < length) bad_input("{}: ends inside its header", path());
  const std::string_view header = text.substr(begin, length);
  first_ = static_cast<int64_t>(begin + length);

  const std::string_view type = value_of_key(header, "descr");
  const bool known = type.size() >= 5 && type[0] == '\'' && type[4] == '\'' &&
                     (type[1] == '<' || (type[1] == '|' && type[3] == '1'));
  if (known) kind_ = type[2], size_ = type[3] - '0';
  const bool whole = (kind_ == 'i' || kind_ == 'u') && (size_ == 1 || size_ == 2 || size_ == 4 || size_ == 8);
  if (!whole && !(kind_ == 'b' && size_ == 1) && !(kind_ == 'f' && (size_ == 4 || size_ == 8)))
    bad_input("{}: its numbers are {}, not integers or floats of 4 or 8 bytes, little-endian", path(),
              printable(type.substr(0, type.find(','))));
  if (!value_of_key(header, "fortran_order").starts_with("False"))
    bad_input("{}: is in Fortran's order: save it with numpy.ascontiguousarray", path());
  const auto shape = sizes_of(value_of_key(header, "shape"));
  if (!shape) bad_input("{}: its header has no shape", path());
  shape_ = *shape;
  const int64_t most = (file_.size() - first_) / size_;
  int64_t count = 1;
  for (const int64_t size : shape_) {
    if (size > 0 && count > most / size)
      bad_input("{}: has room for {} numbers, its shape is {}: it is damaged", path(), most, shape_text());
    count *= size;
  }
  if (first_ + count * size_ != file_.size())
    bad_input("{}: has {} bytes of numbers, its shape {} needs {}: it is damaged", path(),
              file_.size() - first_, shape_text(), count * size_);
}

std::string NpyFile::shape_text() const { return fmt::format("{}", fmt::join(shape_, " x ")); }

template <class Body>
auto NpyFile::visit(int64_t place, Body body) const {
  const std::byte* at = file_.bytes().data() + first_ + place * size_;
  const auto load = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return body(value);
  };
  if (kind_ == 'f') return size_ == 4 ? load(float{}) : load(double{});
  if (kind_ == 'i') {
    if (size_ == 8) return load(int64_t{});
    return size_ == 4 ? load(int32_t{}) : size_ == 2 ? load(int16_t{}) : load(int8_t{});
  }
  if (size_ == 8) return load(uint64_t{});
  return size_ == 4 ? load(uint32_t{}) : size_ == 2 ? load(uint16_t{}) : load(uint8_t{});
}

double NpyFile::number(int64_t place) const {
  return visit(place, [](auto value) { return static_cast<double>(value); });
}

std::optional<uint64_t> NpyFile::whole(int64_t place) const {
  return visit(place, []<class T>(T value) -> std::optional<uint64_t> {
    if constexpr (std::is_floating_point_v<T>) {
      constexpr double kLimit = 18446744073709551616.0;  // 2^64
      const auto wide = static_cast<double>(value);
      if (!(wide >= 0 && wide < kLimit) || std::trunc(wide) != wide) return std::nullopt;
      return static_cast<uint64_t>(wide);
    } else {
      return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
    }
  });
}

}  // namespace trifold
