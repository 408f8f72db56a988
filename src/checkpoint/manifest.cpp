#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <set>

#include "checkpoint/manifest_file.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "core/stored_name.h"
#include "files/file.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "trifold-checkpoint";
constexpr std::string_view kCrcKey = ",\n\"crc32\": \"";
// Larger sizes in a file are certainly wrong and could overflow later.
constexpr int64_t kMostElements = int64_t{1} << 56;
// Limits on the text of a manifest, most of which is boxes of about 100 bytes and 20 values each.
constexpr JsonLimits kManifestLimits{kMostManifestBytes, 32, int64_t{1} << 26};

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t parse_hex(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != kManifestCrcDigits ||
      hex(value) != text)
    bad_input("'{}' is not a CRC32 of {} hexadecimal digits", printable(text), kManifestCrcDigits);
  return value;
}

std::vector<int64_t> list_of(const Shape& shape) { return {shape.extents().begin(), shape.extents().end()}; }

Shape parse_shape(const JsonView& value) { return Shape(std::span<const int64_t>(value.integers(0))); }

constexpr std::string_view kRoles[] = {"shard", "view", "attachment"};  // as FileInfo::Role numbers them
std::string_view name_of(FileInfo::Role role) { return kRoles[static_cast<size_t>(role)]; }

json to_json(const FileInfo& file) {
  return {{"name", file.name},
          {"role", name_of(file.role)},
          {"bytes", file.bytes},
          {"crc32", hex(file.crc)},
          {"frame_crc32", hex(file.frame_crc)}};
}

json to_json(const PieceInfo& piece) {
  json value{{"file", piece.file},
             {"offset", list_of(piece.rect.offset)},
             {"extent", list_of(piece.rect.extent)},
             {"byte_offset", piece.byte_offset},
             {"crc32", hex(piece.crc)}};
  std::string blocks;
  for (const uint32_t crc : piece.blocks) blocks += hex(crc);
  if (!blocks.empty()) value["blocks"] = std::move(blocks);
  return value;
}

json to_json(const TensorInfo& tensor) {
  json pieces = json::array();
  for (const PieceInfo& piece : tensor.pieces) pieces.push_back(to_json(piece));
  return {{"name", tensor.name},
          {"dtype", name_of(tensor.dtype)},
          {"shape", list_of(tensor.global)},
          {"pieces", std::move(pieces)}};
}

FileInfo parse_file(const JsonView& value) {
  FileInfo file;
  file.name = value.at("name").text();
  if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos)
    bad_input("'{}' is not the plain name of a file in the folder of the manifest", printable(file.name));
  const std::string role = value.at("role").text();
  const auto* const known = std::find(std::begin(kRoles), std::end(kRoles), role);
  if (known == std::end(kRoles))
    bad_input("file {} has the unknown role '{}'", printable(file.name), printable(role));
  file.role = static_cast<FileInfo::Role>(known - std::begin(kRoles));
  file.bytes = value.at("bytes").integer(0);
  file.crc = parse_hex(value.at("crc32").text());
  file.frame_crc = parse_hex(value.at("frame_crc32").text());
  return file;
}

PieceInfo parse_piece(const JsonView& value) {
  PieceInfo piece;
  piece.file = static_cast<int>(value.at("file").integer(0, std::numeric_limits<int>::max()));
  piece.rect = {parse_shape(value.at("offset")), parse_shape(value.at("extent"))};
  piece.byte_offset = value.at("byte_offset").integer(0);
  piece.crc = parse_hex(value.at("crc32").text());
  const std::string blocks = value.has("blocks") ? value.at("blocks").text() : std::string();
  for (size_t at = 0; at < blocks.size(); at += kManifestCrcDigits)
    piece.blocks.push_back(parse_hex(blocks.substr(at, kManifestCrcDigits)));
  return piece;
}

void check_global_shape(const TensorInfo& tensor) {
  int64_t left = kMostElements;
  for (int64_t extent : tensor.global.extents()) {
    if (extent < 1 || extent > left)
      bad_input("tensor {} has an impossible shape: {}", tensor.name, to_string(tensor.global));
    left /= extent;
  }
}

TensorInfo parse_tensor(const JsonView& value, const std::vector<FileInfo>& files) {
  TensorInfo tensor;
  tensor.name = value.at("name").text();
  check_tensor_name(tensor.name);
  tensor.dtype = dtype_named(value.at("dtype").text());
  tensor.global = parse_shape(value.at("shape"));
  check_global_shape(tensor);
  std::vector<Rect> rects;
  value.at("pieces").each([&](const JsonView& entry) {
    tensor.pieces.push_back(parse_piece(entry));
    rects.push_back(tensor.pieces.back().rect);
  });
  check_exact_cover(tensor.name, tensor.global, rects);
  for (const PieceInfo& piece : tensor.pieces) {
    if (piece.file < 0 || static_cast<size_t>(piece.file) >= files.size() ||
        files[static_cast<size_t>(piece.file)].role != FileInfo::Role::Shard)
      bad_input("tensor {}: box {} is in file number {}, which is not a shard", tensor.name,
                to_string(piece.rect), piece.file);
    const FileInfo& file = files[static_cast<size_t>(piece.file)];
    const int64_t bytes = piece.rect.elements() * static_cast<int64_t>(size_of(tensor.dtype));
    const int64_t blocks = bytes <= kCrcBlock ? 0 : (bytes + kCrcBlock - 1) / kCrcBlock;
    if (static_cast<int64_t>(piece.blocks.size()) != blocks)
      bad_input("tensor {}: box {} has {} checksums of blocks instead of {}", tensor.name,
                to_string(piece.rect), piece.blocks.size(), blocks);
    if (piece.byte_offset < 0 || bytes > file.bytes || piece.byte_offset > file.bytes - bytes)
      bad_input("tensor {}: box {} does not fit into {}", tensor.name, to_string(piece.rect), file.name);
  }
  return tensor;
}

void check_self_crc(std::string_view text) {
  if (text.size() < kManifestTailBytes) bad_input("its end is missing");
  const std::string_view body = text.substr(0, text.size() - kManifestTailBytes);
  check_manifest_tail(text.substr(body.size()), crc_of_memory(body.data(), body.size()));
}

const json& object_or_nothing(const JsonView& value) {
  return value.value().is_null() ? value.value() : value.object();
}

Manifest parse_body(std::string_view text) {
  check_self_crc(text);
  const json whole = parse_json(text, {}, kManifestLimits);
  const JsonView value(whole);
  if (value.at("format").value() != kFormat) bad_input("its format is not '{}'", kFormat);
  if (value.at("version").value() != kCheckpointVersion)
    bad_input("its version is {}; this program reads version {}", printable_json(value.at("version").value()),
              kCheckpointVersion);
  if (value.at("crc_block_bytes").value() != kCrcBlock)
    bad_input("its blocks have {} bytes; this program reads blocks of {}",
              printable_json(value.at("crc_block_bytes").value()), kCrcBlock);
  Manifest manifest;
  manifest.save_id = value.at("save_id").text();
  manifest.run_id = value.text("run_id", "");
  manifest.meta.step = value.at("step").integer(0);
  manifest.meta.consumed_samples = value.at("consumed_samples").integer(0);
  manifest.meta.model = object_or_nothing(value.at("model"));
  manifest.meta.mesh = object_or_nothing(value.at("mesh"));
  manifest.meta.config = object_or_nothing(value.at("config"));
  manifest.meta.state = object_or_nothing(value.at("state"));
  value.at("files").each([&](const JsonView& entry) { manifest.files.push_back(parse_file(entry)); });
  value.at("tensors").each(
      [&](const JsonView& entry) { manifest.tensors.push_back(parse_tensor(entry, manifest.files)); });
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  check_distinct_names(manifest.tensors);
  return manifest;
}

template <class Items>
std::string lines_of(const Items& items) {
  std::string text = "[";
  for (const auto& item : items)
    text += fmt::format("{}\n{}", text.size() > 1 ? "," : "", json_text(to_json(item)));
  return text + "\n]";
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  const CheckpointMeta& meta = manifest.meta;
  const std::string run =
      manifest.run_id.empty() ? "" : fmt::format("\"run_id\": {},\n", json_text(json(manifest.run_id)));
  // Formatted here to control the line breaks: one field, file or tensor per line.
  std::string text = fmt::format(
      "{{\n\"format\": {},\n\"version\": {},\n\"save_id\": {},\n{}\"step\": {},\n\"consumed_samples\": {},\n"
      "\"crc_block_bytes\": {},\n\"model\": {},\n\"mesh\": {},\n\"config\": {},\n\"state\": {},\n\"files\": "
      "{},\n\"tensors\": {}{}",
      json_text(json(kFormat)), kCheckpointVersion, json_text(json(manifest.save_id)), run, meta.step,
      meta.consumed_samples, kCrcBlock, json_text(meta.model), json_text(meta.mesh), json_text(meta.config),
      json_text(meta.state), lines_of(manifest.files), lines_of(manifest.tensors), kCrcKey);
  text += hex(crc_of_memory(text.data(), text.size()));
  return text.append(kManifestEnd);
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    return parse_body(text);
  } catch (const Error& error) {
    bad_input("{} cannot be used: {}", where, error.what());
  }
}

std::string dataset_path(const std::string& tensor, const Rect& rect) {
  std::string path = "/" + tensor + "/at";
  for (int64_t offset : rect.offset.extents()) path += fmt::format("_{}", offset);
  return path;
}

void check_tensor_name(const std::string& name) {
  check(is_storable_name(name),
        "'{}' is not a valid name for a stored tensor: names are parts of letters, digits, '.', '_' and "
        "'-', separated by '/'",
        printable(name));
}

void check_distinct_names(const std::vector<TensorInfo>& tensors_by_name) {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : tensors_by_name)
    check(names.insert(tensor.name).second, "tensor {} is listed twice", tensor.name);
  for (std::string_view name : names)
    for (size_t slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/', slash + 1))
      check(!names.contains(name.substr(0, slash)),
            "tensors {} and {} cannot be stored together: one is the folder of the other",
            name.substr(0, slash), name);
}

DType dtype_named(std::string_view name) {
  for (DType dtype :
       {DType::F64, DType::F32, DType::I64, DType::I32, DType::U16, DType::U8, DType::BF16, DType::F16})
    if (name_of(dtype) == name) return dtype;
  bad_input("'{}' is not an element type", name);
}

}  // namespace trifold
