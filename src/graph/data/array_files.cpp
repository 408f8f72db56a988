#include "graph/data/array_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "checkpoint/arrays/hdf5_arrays.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/printable.h"
#include "files/file.h"
#include "files/npy_file.h"
#include "files/zip_file.h"
#include "text/indexed_dataset.h"

namespace trifold::graph {

namespace {

constexpr int64_t kMostUnpacked = int64_t{1} << 38;

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A file, or a pair of token files.
bool is_data(const std::string& path) { return is_file(path) || is_indexed_prefix(path); }

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

template <class T>
constexpr NumberType number_type() {
  if constexpr (std::is_same_v<T, double>) return NumberType::F64;
  if constexpr (std::is_same_v<T, float>) return NumberType::F32;
  if constexpr (std::is_same_v<T, Float16>) return NumberType::F16;
  if constexpr (std::is_same_v<T, int64_t>) return NumberType::I64;
  if constexpr (std::is_same_v<T, int32_t>) return NumberType::I32;
  if constexpr (std::is_same_v<T, int16_t>) return NumberType::I16;
  if constexpr (std::is_same_v<T, int8_t>) return NumberType::I8;
  if constexpr (std::is_same_v<T, uint64_t>) return NumberType::U64;
  if constexpr (std::is_same_v<T, uint32_t>) return NumberType::U32;
  if constexpr (std::is_same_v<T, uint16_t>) return NumberType::U16;
  return NumberType::U8;  // also bools, which are bytes of 0 and 1
}

NumberType number_type(const NpyHeader& header) {
  const std::array<std::byte, 8> zero{};
  return header.visit(zero.data(), []<class T>(T) { return number_type<T>(); });
}

NumberType number_type(const SafeTensor& tensor, const std::string& where) {
  constexpr std::array<std::pair<std::string_view, NumberType>, 13> kNames{{{"F64", NumberType::F64},
                                                                            {"F32", NumberType::F32},
                                                                            {"BF16", NumberType::BF16},
                                                                            {"F16", NumberType::F16},
                                                                            {"I64", NumberType::I64},
                                                                            {"I32", NumberType::I32},
                                                                            {"I16", NumberType::I16},
                                                                            {"I8", NumberType::I8},
                                                                            {"U64", NumberType::U64},
                                                                            {"U32", NumberType::U32},
                                                                            {"U16", NumberType::U16},
                                                                            {"U8", NumberType::U8},
                                                                            {"BOOL", NumberType::Bool}}};
  for (const auto& [name, type] : kNames)
    if (tensor.dtype == name) return type;
  bad_input("{}: elements of type {} are not supported", where, tensor.dtype);
}

NumberType number_type(const Hdf5Array& array) {
  if (array.kind == 'b') return NumberType::Bool;
  if (array.kind == 'f')
    return array.size == 8 ? NumberType::F64 : array.size == 4 ? NumberType::F32 : NumberType::F16;
  const bool sign = array.kind == 'i';
  switch (array.size) {
    case 1:
      return sign ? NumberType::I8 : NumberType::U8;
    case 2:
      return sign ? NumberType::I16 : NumberType::U16;
    case 4:
      return sign ? NumberType::I32 : NumberType::U32;
    default:
      return sign ? NumberType::I64 : NumberType::U64;
  }
}

NumberType number_type(TokenType type) {
  switch (type) {
    case TokenType::U8:
      return NumberType::U8;
    case TokenType::I8:
      return NumberType::I8;
    case TokenType::I16:
      return NumberType::I16;
    case TokenType::U16:
      return NumberType::U16;
    case TokenType::I32:
      return NumberType::I32;
    case TokenType::I64:
      break;
  }
  return NumberType::I64;
}

}  // namespace

ArrayFiles::ArrayFiles(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) open(parse(text));
  for (size_t i = 0; i < arrays_.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (arrays_[i].name == arrays_[k].name)
        bad_input("two arrays are given for '{}': {} and {}", printable(arrays_[i].name), arrays_[k].where,
                  arrays_[i].where);
}

const StoredArray* ArrayFiles::find(std::string_view name) const {
  const auto at = std::find_if(arrays_.begin(), arrays_.end(),
                               [&](const StoredArray& array) { return array.name == name; });
  return at == arrays_.end() ? nullptr : &*at;
}

ArrayFiles::Given ArrayFiles::parse(const std::string& text) {
  Given given{text, {}, text, {}};
  const size_t equals = text.find('=');
  if (equals != text.npos && is_name(text.substr(0, equals)) && !is_data(text)) {
    given.name = text.substr(0, equals);
    given.path = text.substr(equals + 1);
  }
  const size_t colon = given.path.rfind(':');
  if (!is_data(given.path) && colon != given.path.npos && is_data(given.path.substr(0, colon))) {
    given.inside = given.path.substr(colon + 1);
    given.path.resize(colon);
  }
  return given;
}

void ArrayFiles::open(const Given& given) {
  if (!is_file(given.path) && is_indexed_prefix(given.path)) return open_tokens(given);
  const MappedFile probe(given.path);  // BadInput if it is missing or no file
  const std::string_view start = probe.text();
  if (start.starts_with("\x93NUMPY")) return open_npy(given);
  if (start.starts_with("PK")) return open_npz(given);
  if (start.starts_with("\x89HDF\r\n\x1a\n")) return open_hdf5(given);
  if (given.path.ends_with(".safetensors")) return open_safetensors(given);
  bad_input(
      "{} is not a file of arrays: .npy, .npz, .safetensors and HDF5 files are read, and .bin/.idx pairs by their prefix",
      printable(given.path));
}

const MappedFile& ArrayFiles::map(const std::string& path) {
  for (const auto& file : files_)
    if (file->path() == path) return *file;
  files_.push_back(std::make_unique<MappedFile>(path));
  return *files_.back();
}

std::byte* ArrayFiles::allocate(int64_t bytes) {
  memory_.emplace_back(static_cast<size_t>(bytes));
  return memory_.back().data();
}

void ArrayFiles::open_npy(const Given& given) {
  if (given.name.empty())
    bad_input("{}: the array in it has no name; give NAME={}", printable(given.path), printable(given.path));
  if (!given.inside.empty()) bad_input("{}: there is only one array in it", printable(given.text));
  const MappedFile& file = map(given.path);
  const NpyHeader header(file.text().substr(0, NpyHeader::kMostBytes), file.size(), given.path);
  arrays_.push_back(StoredArray{given.name, given.path, number_type(header), header.shape(),
                                file.bytes().data() + header.first()});
}

void ArrayFiles::open_tokens(const Given& given) {
  if (given.name.empty())
    bad_input("{}: the tokens in it have no name; give NAME={}", printable(given.path),
              printable(given.path));
  int64_t shift = 0;
  const char* const end = given.inside.data() + given.inside.size();
  const auto [stop, error] = std::from_chars(given.inside.data(), end, shift);
  if (!given.inside.empty() && (error != std::errc() || stop != end || shift < 0))
    bad_input("{}: '{}' is no number of a token; give {}={}:1 for tokens from the second one on",
              printable(given.text), printable(given.inside), given.name, printable(given.path));
  const IndexedDataset tokens(given.path);  // checks both files
  StoredArray array{given.name,
                    given.path,
                    number_type(tokens.token_type()),
                    {tokens.tokens()},
                    map(given.path + ".bin").bytes().data()};
  array.is_stream = true;
  array.shift = shift;
  arrays_.push_back(std::move(array));
}

template <class Data>
void ArrayFiles::add_named(const Given& given, size_t before, StoredArray array, Data&& data) {
  if (!given.inside.empty() && given.inside != array.name) return;
  if (given.inside.empty() && !given.name.empty() && arrays_.size() > before)
    bad_input("{} has several arrays; give {}={}:INSIDE with the name of one", printable(given.path),
              given.name, printable(given.path));
  array.where = fmt::format("{}: {}", given.path, array.name);
  if (!given.name.empty())
    array.name = given.name;
  else if (!given.inside.empty())
    array.name = array.name.substr(array.name.rfind('/') + 1);
  array.data = data();
  arrays_.push_back(std::move(array));
}

void ArrayFiles::check_found(const Given& given, size_t before) const {
  if (arrays_.size() > before) return;
  if (given.inside.empty()) bad_input("{} has no arrays of numbers", printable(given.path));
  bad_input("{} has no array of numbers '{}'", printable(given.path), printable(given.inside));
}

void ArrayFiles::open_npz(const Given& given) {
  constexpr std::string_view kEnding = ".npy";
  const ZipFile zip(given.path);
  const size_t before = arrays_.size();
  for (const ZipMember& member : zip.members()) {
    if (!member.name.ends_with(kEnding)) continue;
    const std::string name = member.name.substr(0, member.name.size() - kEnding.size());
    if (!given.inside.empty() && given.inside != name) continue;
    const std::byte* content = nullptr;
    if (member.deflated) {
      const std::string unpacked = zip.read(member, kMostUnpacked);
      std::byte* memory = allocate(member.bytes);
      std::memcpy(memory, unpacked.data(), unpacked.size());
      content = memory;
    } else {
      content = map(given.path).bytes().data() + member.offset;
    }
    const auto beginning = std::min(static_cast<size_t>(member.bytes), size_t{NpyHeader::kMostBytes});
    const NpyHeader header({reinterpret_cast<const char*>(content), beginning}, member.bytes,
                           fmt::format("{}: {}", given.path, name));
    add_named(given, before, {name, {}, number_type(header), header.shape(), nullptr},
              [&] { return content + header.first(); });
  }
  check_found(given, before);
}

void ArrayFiles::open_safetensors(const Given& given) {
  const SafetensorsFile file{std::filesystem::path(given.path)};
  const MappedFile& mapped = map(given.path);
  uint64_t header = 0;
  check(mapped.size() >= 8, "{} has become shorter while it was read", given.path);
  std::memcpy(&header, mapped.bytes().data(), sizeof header);
  const size_t before = arrays_.size();
  for (const SafeTensor& tensor : file.tensors()) {
    if (!given.inside.empty() && given.inside != tensor.name) continue;
    const int64_t begin = 8 + static_cast<int64_t>(header) + tensor.begin;
    check(begin >= 8 && begin <= mapped.size() - tensor.bytes(), "{} was changed while it was read",
          given.path);
    const NumberType type = number_type(tensor, fmt::format("{}: {}", given.path, tensor.name));
    add_named(given, before, {tensor.name, {}, type, tensor.shape, nullptr},
              [&] { return mapped.bytes().data() + begin; });
  }
  check_found(given, before);
}

void ArrayFiles::open_hdf5(const Given& given) {
  const size_t before = arrays_.size();
  for (const Hdf5Array& array : hdf5_arrays(given.path))
    add_named(given, before, {array.name, {}, number_type(array), array.shape, nullptr},
              [&]() -> const std::byte* {
                const MappedFile& mapped = map(given.path);
                if (array.offset && *array.offset <= mapped.size() - array.bytes())
                  return mapped.bytes().data() + *array.offset;
                std::byte* memory = allocate(array.bytes());
                read_hdf5_array(given.path, array, {memory, static_cast<size_t>(array.bytes())});
                return memory;
              });
  check_found(given, before);
}

}  // namespace trifold::graph
