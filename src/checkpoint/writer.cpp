#include "checkpoint/writer.h"

#include <algorithm>

#include "checkpoint/collective.h"
#include "checkpoint/shard_file.h"
#include "core/not_finite.h"
#include "core/read_json.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The description of a rank's boxes for the other ranks: before the write without, after it with the description of its
// file.
struct ShardTable {
  std::vector<TensorInfo> boxes;  // one piece each
  FileInfo file;
};

json extents_json(const Shape& shape) {
  return std::vector<int64_t>(shape.extents().begin(), shape.extents().end());
}
Shape shape_of(const json& value) {
  return Shape(std::span<const int64_t>(value.get<std::vector<int64_t>>()));
}

std::string encode(const ShardTable& table) {
  json boxes = json::array();
  for (const TensorInfo& box : table.boxes) {
    const PieceInfo& piece = box.pieces.front();
    boxes.push_back({box.name, name_of(box.dtype), extents_json(box.global), extents_json(piece.rect.offset),
                     extents_json(piece.rect.extent), piece.byte_offset, piece.crc, piece.blocks});
  }
  const FileInfo& file = table.file;
  return json_text(json{file.name, file.bytes, file.crc, file.frame_crc, std::move(boxes)});
}

ShardTable decode(const std::string& text) {
  const json value = json::parse(text);
  ShardTable table;
  table.file = {value[0].get<std::string>(), FileInfo::Role::Shard, value[1].get<int64_t>(),
                value[2].get<uint32_t>(), value[3].get<uint32_t>()};
  for (const json& box : value[4]) {
    const PieceInfo piece{{shape_of(box[3]), shape_of(box[4])},
                          0,
                          box[5].get<int64_t>(),
                          box[6].get<uint32_t>(),
                          box[7].get<std::vector<uint32_t>>()};
    table.boxes.push_back(
        {box[0].get<std::string>(), dtype_named(box[1].get<std::string>()), shape_of(box[2]), {piece}});
  }
  return table;
}

ShardTable table_of(std::span<const NamedTensor> boxes) {
  ShardTable table;
  for (const NamedTensor& box : boxes)
    table.boxes.push_back({box.spec.name, box.data.dtype, box.spec.global, {{box.spec.local, 0, 0, 0, {}}}});
  return table;
}

ManifestBuilder put_together(std::span<const std::string> tables) {
  ManifestBuilder all;
  for (const std::string& text : tables) {
    const ShardTable table = decode(text);
    if (!table.boxes.empty()) all.add(table.file, table.boxes);
  }
  return all;
}

// Appends a box to its file block by block. Each block is checked while it is in the cache: a state with a value that
// is not finite can never be trained, and must not become the newest good checkpoint.
void append_finite(ShardFile& file, size_t index, const NamedTensor& box, int64_t step) {
  const auto* data = static_cast<const std::byte*>(box.data.data);
  const size_t bytes = box.data.bytes();
  const size_t size = size_of(box.data.dtype);
  const size_t row_bytes = box.row_bytes();
  const size_t rows = std::max<size_t>(kCrcBlock / row_bytes, 1);
  const size_t most = box.stored == nullptr ? static_cast<size_t>(kCrcBlock) : rows * row_bytes;
  const Buffer copy(box.stored == nullptr ? 0 : most);
  for (size_t at = 0; at < bytes; at += most) {
    const size_t part = std::min(most, bytes - at);
    const std::byte* from = data + at;
    if (box.stored != nullptr) {
      box.stored->read(static_cast<int64_t>(at / row_bytes), static_cast<int64_t>(part / row_bytes),
                       copy.data());
      from = copy.data();
    }
    if (const auto bad = first_not_finite(from, box.data.dtype, static_cast<int64_t>(part / size)))
      fail(
          "after step {}, element {} of tensor {}, box {}, is {}; a state that is not finite cannot be "
          "trained on, and is not saved",
          step, static_cast<int64_t>(at / size) + bad->index, box.spec.name, to_string(box.spec.local),
          bad->what);
    file.append(index, from, part);
  }
}

// Writes the file of a rank and returns its table.
ShardTable write_shard(const fs::path& path, int64_t step, std::span<const NamedTensor> boxes,
                       const SaveOptions& options) {
  ShardTable table = table_of(boxes);
  if (boxes.empty()) return table;
  std::vector<ShardBox> places;
  for (const NamedTensor& box : boxes)
    places.push_back({box.spec.name, box.data.dtype, box.spec.global, box.spec.local});
  ShardFile file(path, step, std::move(places));
  options.reach(SavePhase::LaidOut);
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (i == boxes.size() / 2) options.reach(SavePhase::HalfWritten);
    append_finite(file, i, boxes[i], step);
  }
  file.finish();
  for (size_t i = 0; i < boxes.size(); ++i) table.boxes[i].pieces.front() = file.piece(i);
  table.file = file.info();
  options.reach(SavePhase::ShardWritten);
  return table;
}

}  // namespace

std::vector<NamedTensor> owned_boxes(std::span<const NamedTensor> mine, const MeshCoords& coords) {
  std::vector<NamedTensor> out;
  for (const NamedTensor& tensor : mine) {
    const ShardSpec& spec = tensor.spec;
    check_tensor_name(spec.name);
    check(spec.global.elements() > 0, "tensor {} has no elements: {}", spec.name, to_string(spec.global));
    check(spec.local.elements() == tensor.data.elements(),
          "tensor {}: the box {} is given {} elements of data", spec.name, to_string(spec.local),
          tensor.data.elements());
    if (tensor.data.elements() > 0 && counts_here(spec, coords)) out.push_back(tensor);
  }
  return out;
}

fs::path save_checkpoint(const fs::path& root, const CheckpointMeta& meta, std::span<const NamedTensor> mine,
                         Communicator& world, const MeshCoords& coords, const SaveOptions& options) {
  fs::path final_path = root / step_directory_name(meta.step);
  const std::string doing = fmt::format("saving {}", final_path.string());
  const bool is_first = world.rank() == 0;

  // All ranks agree on the boxes before anything is written.
  std::vector<NamedTensor> boxes;
  std::vector<std::string> tables = gather_texts(world, doing, [&] {
    boxes = owned_boxes(mine, coords);
    return encode(table_of(boxes));
  });
  std::optional<NewCheckpoint> checkpoint;  // on rank 0
  const fs::path folder =
      gather_texts(world, doing, [&]() -> std::string {
        if (!is_first) return {};
        const ManifestBuilder all = put_together(tables);
        all.finish();  // checks for gaps and overlaps
        return checkpoint.emplace(root, meta.step, all.bytes(), options).folder().string();
      }).front();
  tables = gather_texts(world, doing, [&] {
    return encode(
        write_shard(folder / fmt::format("shard_{:05}.h5", world.rank()), meta.step, boxes, options));
  });
  gather_texts(world, doing, [&]() -> std::string {
    if (!is_first) return {};
    ManifestBuilder all = put_together(tables);
    for (const AttachedText& file : options.attached) all.add(checkpoint->attach(file), {});
    checkpoint->commit(meta, all);
    return {};
  });
  gather_texts(world, doing, [&]() -> std::string {
    if (is_first) checkpoint->tidy_up();
    return {};
  });
  if (!options.then) return final_path;
  return gather_texts(world, doing,
                      [&] { return is_first ? options.then(final_path).string() : std::string(); })
      .front();
}

}  // namespace trifold
