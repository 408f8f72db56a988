#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/crc32.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kDigestBlock = 4096;
constexpr int64_t kDigestBlocks = 256;  // in a model
using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
// Limits on a header, which allow more than 200 000 tensors.
constexpr JsonLimits kHeaderLimits{kMostHeaderBytes, 32, 2'000'000};
constexpr int64_t kMostSize = int64_t{1} << 56;
constexpr std::string_view kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct TypeInfo {
  std::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array kTypes{TypeInfo{"F64", 8, DType::F64},      TypeInfo{"F32", 4, DType::F32},
                            TypeInfo{"BF16", 2, DType::BF16},    TypeInfo{"F16", 2, DType::F16},
                            TypeInfo{"I64", 8, DType::I64},      TypeInfo{"I32", 4, DType::I32},
                            TypeInfo{"U16", 2, DType::U16},      TypeInfo{"U8", 1, DType::U8},
                            TypeInfo{"BOOL", 1, std::nullopt},   TypeInfo{"I8", 1, std::nullopt},
                            TypeInfo{"I16", 2, std::nullopt},    TypeInfo{"U32", 4, std::nullopt},
                            TypeInfo{"U64", 8, std::nullopt},    TypeInfo{"F8_E4M3", 1, std::nullopt},
                            TypeInfo{"F8_E5M2", 1, std::nullopt}};

const TypeInfo* type_called(std::string_view name) {
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

SafeTensor parse_tensor(const std::string& name, const JsonView& entry, int64_t data_bytes) {
  SafeTensor tensor;
  tensor.name = name;
  tensor.dtype = entry.at("dtype").text();
  const TypeInfo* type = type_called(tensor.dtype);
  if (type == nullptr) bad_input("the type '{}' is not known", printable(tensor.dtype));
  tensor.shape = entry.at("shape").integers(0, kMostSize);
  int64_t bytes = type->bytes;
  // Extents of a damaged file can overflow; such a shape is rejected even if another extent is 0.
  for (const int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) bad_input("its shape has too many elements");
  const std::vector<int64_t> offsets = entry.at("data_offsets").integers(0, kMostSize);
  if (offsets.size() != 2) bad_input("'data_offsets' has {} entries instead of 2", offsets.size());
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  if (tensor.begin > tensor.end || tensor.end > data_bytes)
    bad_input("its bytes [{}, {}) are outside the {} after the header", tensor.begin, tensor.end, data_bytes);
  if (tensor.bytes() != bytes)
    bad_input("its shape takes {} bytes as {}, but it is given {}", bytes, tensor.dtype, tensor.bytes());
  return tensor;
}

// Checks that the tensors follow each other without gaps or overlaps, from the first byte to the last.
void check_no_gaps(const std::vector<SafeTensor>& by_place, int64_t data_bytes) {
  int64_t at = 0;
  for (const SafeTensor& tensor : by_place) {
    if (tensor.begin != at)
      bad_input(
          "tensor '{}' should begin at byte {} after the header, where the previous one ends, not at {}",
          printable(tensor.name), at, tensor.begin);
    at = tensor.end;
  }
  if (at != data_bytes) bad_input("{} bytes follow the last tensor", data_bytes - at);
}

json parse_object(std::string_view text) {
  json value = parse_json(text, {}, kHeaderLimits);
  if (!value.is_object()) bad_input("it is not a JSON object");
  return value;
}

std::vector<SafeTensor> parse_header(std::string_view text, int64_t data_bytes) {
  std::vector<SafeTensor> tensors;
  const json header = parse_object(text);
  JsonView(header).members([&](const std::string& name, const JsonView& entry) {
    if (name == kMetadata) return;
    try {
      tensors.push_back(parse_tensor(name, entry, data_bytes));
    } catch (const Error& error) {
      bad_input("tensor '{}': {}", printable(name), error.what());
    }
  });
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  check_no_gaps(tensors, data_bytes);
  return tensors;
}

std::map<std::string, std::string> parse_index(std::string_view text) {
  std::map<std::string, std::string> files;
  const json index = parse_object(text);
  JsonView(index).at("weight_map").members([&](const std::string& name, const JsonView& entry) {
    const std::string file = entry.text();
    if (file.empty() || file.front() == '.' || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos)
      bad_input("'{}' is not the plain name of a file in its folder", printable(file));
    files[name] = file;
  });
  if (files.empty()) bad_input("it lists no tensor");
  return files;
}

// Turns every error of `body` into a BadInput that names the file `where`.
template <class Body>
auto reading(const std::string& where, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    bad_input("{} cannot be used: {}", where, error.what());
  }
}

File open_readable(const fs::path& path) {
  return reading(path.string(), [&] { return File(path, File::Mode::Read); });
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& type) { return type.dtype == dtype; })
      ->name;
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const TypeInfo* type = type_called(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::vector<SafeTensor> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                                 const std::string& where) {
  return reading(where, [&] { return parse_header(json, data_bytes); });
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& where) {
  return reading(where, [&] { return parse_index(json); });
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(open_readable(path)) {
  const std::string where = path.string();
  std::string text;
  const int64_t data_bytes = reading(where, [&] {
    const int64_t size = file_.size();
    if (size < kLengthBytes)
      bad_input("it has {} bytes; a safetensors file has at least {}", size, kLengthBytes);
    uint64_t length = 0;
    file_.read(&length, kLengthBytes, 0);
    if (length > static_cast<uint64_t>(std::min(kMostHeaderBytes, size - kLengthBytes)))
      bad_input(
          "it is truncated or not a safetensors file: "
          "it claims a header of {} bytes, but has {} bytes in all",
          length, size);
    text.resize(length);
    file_.read(text.data(), text.size(), kLengthBytes);
    data_ = kLengthBytes + static_cast<int64_t>(length);
    return size - data_;
  });
  tensors_ = parse_safetensors_header(text, data_bytes, where);
}

uint32_t SafetensorsFile::digest(int64_t blocks) const {
  std::array<std::byte, kDigestBlock> block{};
  const int64_t size = file_.size();
  uint32_t crc = crc32_of(0, &size, sizeof(size));
  const int64_t step = std::max<int64_t>(kDigestBlock, size / blocks);
  for (int64_t at = 0; at < size; at += step) {
    const auto bytes = static_cast<size_t>(std::min<int64_t>(kDigestBlock, size - at));
    file_.read(block.data(), bytes, at);
    crc = crc32_of(crc, block.data(), bytes);
  }
  return crc;
}

void SafetensorsFile::read(const SafeTensor& tensor, int64_t offset, void* to, size_t bytes) const {
  check(offset >= 0 && static_cast<int64_t>(bytes) <= tensor.bytes() - offset,
        "{}: tensor {} has {} bytes, not {} from {} on", path().string(), tensor.name, tensor.bytes(), bytes,
        offset);
  file_.read(to, bytes, data_ + tensor.begin + offset);
}

uint32_t SafetensorsModel::digest() const {
  const auto files = static_cast<int64_t>(files_.size());
  uint32_t crc = 0;
  for (const auto& file : files_) {
    const uint32_t part = file->digest(std::max<int64_t>(4, kDigestBlocks / files));
    crc = crc32_of(crc, &part, sizeof(part));
  }
  return crc;
}

SafetensorsModel::SafetensorsModel(const fs::path& folder) {
  std::error_code ignored;
  const fs::path index = folder / kSafetensorsIndexName;
  const bool has_index = fs::exists(index, ignored);
  if (!has_index || fs::exists(folder / kSafetensorsName, ignored)) {
    ignores_index_ = has_index;
    add_file(folder / kSafetensorsName);
    return;
  }
  const auto place = parse_safetensors_index(
      reading(index.string(), [&] { return read_input_file(index.string(), kMostHeaderBytes); }),
      index.string());
  std::set<std::string> names;
  for (const auto& entry : place) names.insert(entry.second);
  for (const std::string& name : names) add_file(folder / name);
  for (const auto& [tensor, file] : place) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.file->path().filename() != file)
      bad_input("{}: tensor '{}' is not in {}, where the index says it is", index.string(), printable(tensor),
                printable(file));
  }
  for (const auto& entry : tensors_)
    if (!place.contains(entry.first))
      bad_input("{} does not list tensor '{}' of {}", index.string(), printable(entry.first),
                entry.second.file->path().filename().string());
}

void SafetensorsModel::add_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const SafeTensor& tensor : files_.back()->tensors())
    if (!tensors_.try_emplace(tensor.name, Entry{files_.back().get(), &tensor}).second)
      bad_input("tensor '{}' is in {} and in {}", printable(tensor.name),
                tensors_.at(tensor.name).file->path().string(), path.string());
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<SafeTensor> tensors,
                                     const std::string& made_by)
    : file_(path, File::Mode::Create), tensors_(std::move(tensors)) {
  // Written member by member: an ordered_json searches all its members for every new one.
  using nlohmann::ordered_json;
  const auto member = [](std::string_view name, const ordered_json& value) {
    return json_text(ordered_json(name)) + ":" + json_text(value);
  };
  ordered_json metadata{{"format", "pt"}};  // readers require it: it names the layout
  if (!made_by.empty()) metadata["made_by"] = made_by;
  std::string text = "{" + member(kMetadata, metadata);
  std::set<std::string_view> names;
  int64_t at = 0;
  for (SafeTensor& tensor : tensors_) {
    const TypeInfo* type = type_called(tensor.dtype);
    check(type != nullptr, "safetensors files have no type '{}'", tensor.dtype);
    int64_t bytes = type->bytes;
    for (const int64_t extent : tensor.shape) bytes *= extent;
    tensor.begin = at;
    at = tensor.end = at + bytes;
    check(names.insert(tensor.name).second, "tensor {} appears twice", tensor.name);
    text += "," + member(tensor.name, {{"dtype", tensor.dtype},
                                       {"shape", tensor.shape},
                                       {"data_offsets", {tensor.begin, tensor.end}}});
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // elements start at a multiple of 8
  const uint64_t length = text.size();
  file_.write(&length, kLengthBytes, 0);
  file_.write(text.data(), text.size(), kLengthBytes);
  data_ = kLengthBytes + static_cast<int64_t>(length);
  file_.resize(data_ + at);
  file_.reserve(data_ + at);
}

void SafetensorsWriter::write(size_t index, int64_t offset, const void* from, size_t bytes) const {
  const SafeTensor& tensor = tensors_[index];
  check(offset >= 0 && static_cast<int64_t>(bytes) <= tensor.bytes() - offset,
        "tensor {} has {} bytes, not {} from {} on", tensor.name, tensor.bytes(), bytes, offset);
  file_.write(from, bytes, data_ + tensor.begin + offset);
}

void SafetensorsWriter::finish() {
  file_.sync();
  file_.close();
}

}  // namespace trifold
