#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/error.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;  // the format's own bound
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

// A file may say anything; only these are sizes.
int64_t size_in(const json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{1} << 56)
    bad_input("{} is not a number of that kind: {}", what,
              value.dump(-1, ' ', false, json::error_handler_t::replace));
  return static_cast<int64_t>(value.get<uint64_t>());
}

const json& field(const json& entry, const char* name, json::value_t type) {
  if (!entry.is_object() || !entry.contains(name) || entry[name].type() != type)
    bad_input("'{}' is missing or of another type", name);
  return entry[name];
}

SafeTensor parse_tensor(const std::string& name, const json& entry, int64_t data_bytes) {
  SafeTensor tensor;
  tensor.name = name;
  tensor.dtype = field(entry, "dtype", json::value_t::string).get<std::string>();
  const TypeInfo* type = type_called(tensor.dtype);
  if (type == nullptr) bad_input("the type '{}' is not known", tensor.dtype);
  int64_t bytes = type->bytes;
  for (const json& extent : field(entry, "shape", json::value_t::array)) {
    tensor.shape.push_back(size_in(extent, "an extent"));
    // Larger than the file is wrong whatever follows, and must not overflow on the way; unless a zero
    // follows.
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes))
      bad_input("its shape has too many elements");
  }
  const json& offsets = field(entry, "data_offsets", json::value_t::array);
  if (offsets.size() != 2) bad_input("'data_offsets' has {} numbers instead of 2", offsets.size());
  tensor.begin = size_in(offsets[0], "the first offset");
  tensor.end = size_in(offsets[1], "the second offset");
  if (tensor.begin > tensor.end || tensor.end > data_bytes)
    bad_input("its bytes [{}, {}) do not lie in the {} behind the header", tensor.begin, tensor.end,
              data_bytes);
  if (tensor.bytes() != bytes)
    bad_input("its shape takes {} bytes as {}, but it is given {}", bytes, tensor.dtype, tensor.bytes());
  return tensor;
}

// Every byte once: they follow each other from the first to the last.
void check_no_gaps(const std::vector<SafeTensor>& by_place, int64_t data_bytes) {
  int64_t at = 0;
  for (const SafeTensor& tensor : by_place) {
    if (tensor.begin != at)
      bad_input(
          "tensor '{}' should begin at byte {} behind the header, where the one before it ends, not at {}",
          tensor.name, at, tensor.begin);
    at = tensor.end;
  }
  if (at != data_bytes) bad_input("{} bytes follow the last tensor", data_bytes - at);
}

// JSON whose outermost object has no name twice: the library would keep the last without a word.
json parse_once(std::string_view text) {
  std::set<std::string> names;
  json value = json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
      bad_input("it has '{}' twice", parsed.get<std::string>());
    return true;
  });
  if (!value.is_object()) bad_input("it is no JSON object");
  return value;
}

std::vector<SafeTensor> parse_header(std::string_view text, int64_t data_bytes) {
  std::vector<SafeTensor> tensors;
  const json header = parse_once(text);
  for (const auto& item : header.items()) {
    if (item.key() == kMetadata) continue;
    try {
      tensors.push_back(parse_tensor(item.key(), item.value(), data_bytes));
    } catch (const Error& error) {
      bad_input("tensor '{}': {}", item.key(), error.what());
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  check_no_gaps(tensors, data_bytes);
  return tensors;
}

std::map<std::string, std::string> parse_index(std::string_view text) {
  std::map<std::string, std::string> files;
  const json index = parse_once(text);
  for (const auto& item : field(index, "weight_map", json::value_t::object).items()) {
    if (!item.value().is_string()) bad_input("the file of '{}' is no name", item.key());
    const auto file = item.value().get<std::string>();
    if (file.empty() || file.front() == '.' || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos)
      bad_input("'{}' is not the plain name of a file beside it", file);
    files[item.key()] = file;
  }
  if (files.empty()) bad_input("it lists no tensor");
  return files;
}

// Everything that goes wrong in `body` is of the input, and of the file `where`.
template <class Body>
auto reading(const std::string& where, const char* what, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    bad_input("{} cannot be used: {}", where, error.what());
  } catch (const json::exception& error) {
    bad_input("{} is no {}: {}", where, what, error.what());
  }
}

File open_readable(const fs::path& path) {
  return reading(path.string(), "file", [&] { return File(path, File::Mode::Read); });
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
  return reading(where, "safetensors file", [&] { return parse_header(json, data_bytes); });
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& where) {
  return reading(where, "index of safetensors files", [&] { return parse_index(json); });
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(open_readable(path)) {
  const std::string where = path.string();
  std::string text;
  const int64_t data_bytes = reading(where, "file", [&] {
    const int64_t size = file_.size();
    if (size < kLengthBytes)
      bad_input("it has {} bytes; a safetensors file has at least {}", size, kLengthBytes);
    uint64_t length = 0;
    file_.read(&length, kLengthBytes, 0);
    if (length > static_cast<uint64_t>(std::min(kMostHeaderBytes, size - kLengthBytes)))
      bad_input(
          "it is truncated or no safetensors file: it claims a header of {} bytes, but has {} bytes in all",
          length, size);
    text.resize(length);
    file_.read(text.data(), text.size(), kLengthBytes);
    data_ = kLengthBytes + static_cast<int64_t>(length);
    return size - data_;
  });
  tensors_ = parse_safetensors_header(text, data_bytes, where);
}

void SafetensorsFile::read(const SafeTensor& tensor, int64_t offset, void* to, size_t bytes) const {
  check(offset >= 0 && static_cast<int64_t>(bytes) <= tensor.bytes() - offset,
        "{}: tensor {} has {} bytes, not {} from {} on", path().string(), tensor.name, tensor.bytes(), bytes,
        offset);
  file_.read(to, bytes, data_ + tensor.begin + offset);
}

SafetensorsModel::SafetensorsModel(const fs::path& folder) {
  std::error_code ignored;
  const fs::path index = folder / kSafetensorsIndexName;
  if (!fs::exists(index, ignored)) {
    add_file(folder / kSafetensorsName);
    return;
  }
  const auto place = parse_safetensors_index(
      reading(index.string(), "file", [&] { return read_text(index, kMostHeaderBytes); }), index.string());
  std::set<std::string> names;
  for (const auto& entry : place) names.insert(entry.second);
  for (const std::string& name : names) add_file(folder / name);
  for (const auto& [tensor, file] : place) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.file->path().filename() != file)
      bad_input("{}: tensor '{}' is not in {}, where the index says it is", index.string(), tensor, file);
  }
  for (const auto& entry : tensors_)
    if (!place.contains(entry.first))
      bad_input("{} does not list tensor '{}' of {}", index.string(), entry.first,
                entry.second.file->path().filename().string());
}

void SafetensorsModel::add_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const SafeTensor& tensor : files_.back()->tensors())
    if (!tensors_.try_emplace(tensor.name, Entry{files_.back().get(), &tensor}).second)
      bad_input("tensor '{}' is in {} and in {}", tensor.name, tensors_.at(tensor.name).file->path().string(),
                path.string());
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<SafeTensor> tensors)
    : file_(path, File::Mode::Create), tensors_(std::move(tensors)) {
  nlohmann::ordered_json header;
  header[kMetadata] = {{"format", "pt"}};  // readers ask for it: who wrote the tensors' layout
  int64_t at = 0;
  for (SafeTensor& tensor : tensors_) {
    const TypeInfo* type = type_called(tensor.dtype);
    check(type != nullptr, "safetensors files have no type '{}'", tensor.dtype);
    int64_t bytes = type->bytes;
    for (const int64_t extent : tensor.shape) bytes *= extent;
    tensor.begin = at;
    at = tensor.end = at + bytes;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
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
