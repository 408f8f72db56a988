#include "checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>  // renameat2
#include <cstring>
#include <map>

#include "checkpoint/collective.h"
#include "checkpoint/files.h"
#include "checkpoint/hdf5_file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What one rank tells the others about its boxes: before the write without, after it with the facts of its
// file.
struct ShardTable {
  std::vector<TensorInfo> boxes;  // one piece each
  FileInfo file;
};

json list_of(const Shape& shape) {
  return std::vector<int64_t>(shape.extents().begin(), shape.extents().end());
}
Shape shape_of(const json& value) {
  return Shape(std::span<const int64_t>(value.get<std::vector<int64_t>>()));
}

std::string encode(const ShardTable& table) {
  json boxes = json::array();
  for (const TensorInfo& box : table.boxes) {
    const PieceInfo& piece = box.pieces.front();
    boxes.push_back({box.name, name_of(box.dtype), list_of(box.global), list_of(piece.rect.offset),
                     list_of(piece.rect.extent), piece.byte_offset, piece.crc});
  }
  return json{table.file.name, table.file.bytes, table.file.crc, std::move(boxes)}.dump();
}

ShardTable decode(const std::string& text) {
  const json value = json::parse(text);
  ShardTable table;
  table.file = {value[0].get<std::string>(), FileInfo::Role::Shard, value[1].get<int64_t>(),
                value[2].get<uint32_t>()};
  for (const json& box : value[3]) {
    const PieceInfo piece{
        {shape_of(box[3]), shape_of(box[4])}, 0, box[5].get<int64_t>(), box[6].get<uint32_t>()};
    table.boxes.push_back(
        {box[0].get<std::string>(), dtype_named(box[1].get<std::string>()), shape_of(box[2]), {piece}});
  }
  return table;
}

// The boxes this rank has to write.
std::vector<NamedTensor> owned(std::span<const NamedTensor> mine, const MeshCoords& coords) {
  std::vector<NamedTensor> out;
  for (const NamedTensor& tensor : mine) {
    const ShardSpec& spec = tensor.spec;
    check_tensor_name(spec.name);
    check(spec.global.elements() > 0, "tensor {} has no elements: {}", spec.name, to_string(spec.global));
    check(spec.local.elements() == tensor.data.elements(),
          "tensor {}: the box {} is given {} elements of data", spec.name, to_string(spec.local),
          tensor.data.elements());
    if (tensor.data.elements() > 0 && is_owner(spec, coords)) out.push_back(tensor);
  }
  return out;
}

ShardTable table_of(std::span<const NamedTensor> boxes, int rank) {
  ShardTable table;
  if (!boxes.empty()) table.file.name = fmt::format("shard_{:05}.h5", rank);
  for (const NamedTensor& box : boxes)
    table.boxes.push_back({box.spec.name, box.data.dtype, box.spec.global, {{box.spec.local, 0, 0, 0}}});
  return table;
}

// Puts the tables of all ranks together; what does not fit together is an Error.
void assemble(Manifest& manifest, std::span<const std::string> tables) {
  std::map<std::string, TensorInfo> by_name;
  manifest.files.clear();
  for (const std::string& text : tables) {
    ShardTable table = decode(text);
    if (table.boxes.empty()) continue;
    const int file = static_cast<int>(manifest.files.size());
    manifest.files.push_back(table.file);
    for (TensorInfo& box : table.boxes) {
      box.pieces.front().file = file;
      const auto [found, is_new] = by_name.try_emplace(box.name, box);
      if (is_new) continue;
      TensorInfo& tensor = found->second;
      check(tensor.dtype == box.dtype && tensor.global == box.global,
            "tensor {} is {} {} on one rank and {} {} on another", tensor.name, name_of(tensor.dtype),
            to_string(tensor.global), name_of(box.dtype), to_string(box.global));
      tensor.pieces.push_back(box.pieces.front());
    }
  }
  manifest.tensors.clear();
  for (auto& entry : by_name) manifest.tensors.push_back(std::move(entry.second));
  check_distinct_names(manifest.tensors);
  for (const TensorInfo& tensor : manifest.tensors) {
    std::vector<Rect> rects;
    for (const PieceInfo& piece : tensor.pieces) rects.push_back(piece.rect);
    check_exact_cover(tensor.name, tensor.global, rects);
  }
}

void write_attributes(Hdf5File& file, const Manifest& manifest) {
  file.set_attribute("/", "format", "trifold-checkpoint");
  file.set_attribute("/", "save_id", manifest.save_id);
  file.set_attribute("/", "step", std::span<const int64_t>(&manifest.meta.step, 1));
}

// Writes the file of this rank and completes its table.
void write_shard(const fs::path& directory, const Manifest& manifest, std::span<const NamedTensor> boxes,
                 ShardTable& table) {
  if (boxes.empty()) return;
  const fs::path path = directory / table.file.name;
  std::vector<KnownRegion> regions;
  Hdf5File file = Hdf5File::create(path);
  write_attributes(file, manifest);
  for (size_t i = 0; i < boxes.size(); ++i) {
    PieceInfo& piece = table.boxes[i].pieces.front();
    const Tensor data = boxes[i].data.reshape(piece.rect.extent);
    const std::string dataset = dataset_path(table.boxes[i].name, piece.rect);
    piece.crc = crc_of_memory(data.data, data.bytes());
    piece.byte_offset = file.write(dataset, data);
    if (piece.rect.offset.rank() > 0) file.set_attribute(dataset, "offset", piece.rect.offset.extents());
    if (piece.rect.offset.rank() > 0)
      file.set_attribute(dataset, "global_shape", table.boxes[i].global.extents());
    regions.push_back({piece.byte_offset, static_cast<int64_t>(data.bytes()), piece.crc});
  }
  file.close();
  sync_to_disk(path);
  std::sort(regions.begin(), regions.end(),
            [](const KnownRegion& a, const KnownRegion& b) { return a.offset < b.offset; });
  table.file.bytes = static_cast<int64_t>(fs::file_size(path));
  table.file.crc = crc_of_file(path, regions);
}

// The file of virtual datasets that shows whole tensors to people's tools.
void write_view(const fs::path& directory, Manifest& manifest) {
  const fs::path path = directory / kViewName;
  Hdf5File view = Hdf5File::create(path);
  write_attributes(view, manifest);
  for (const TensorInfo& tensor : manifest.tensors) {
    std::vector<Hdf5File::Source> sources;
    for (const PieceInfo& piece : tensor.pieces)
      sources.push_back({piece.rect, manifest.files[static_cast<size_t>(piece.file)].name,
                         dataset_path(tensor.name, piece.rect)});
    view.write_virtual("/" + tensor.name, tensor.dtype, tensor.global, sources);
  }
  view.close();
  sync_to_disk(path);
  manifest.files.push_back({std::string(kViewName), FileInfo::Role::View,
                            static_cast<int64_t>(fs::file_size(path)), crc_of_file(path)});
}

// Gives the finished directory its final name: the commit. An older checkpoint of the same step ends up under
// the temporary name, or a random one, and is removed.
void commit(const fs::path& temporary, const fs::path& final_path) {
  sync_to_disk(temporary);
  if (!fs::exists(final_path)) {
    fs::rename(temporary, final_path);
  } else if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(temporary);
  } else {
    check(errno == EINVAL || errno == ENOSYS, "{} cannot be replaced: {}", final_path.string(),
          std::strerror(errno));
    const fs::path old = final_path.string() + ".trash-" + random_id();
    fs::rename(final_path, old);
    fs::rename(temporary, final_path);
    fs::remove_all(old);
  }
  sync_to_disk(final_path.parent_path());
}

void update_latest(const fs::path& root, const fs::path& final_path) {
  const fs::path temporary = root / fmt::format("{}.tmp-{}", kLatestName, random_id());
  try {
    write_text(temporary, final_path.filename().string() + "\n");
    fs::rename(temporary, root / kLatestName);
    sync_to_disk(root);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    fail("the checkpoint {} is complete, but {} could not be updated: {}", final_path.string(), kLatestName,
         error.what());
  }
}

}  // namespace

std::string step_directory_name(int64_t step) { return fmt::format("step_{:010}", step); }

fs::path save_checkpoint(const fs::path& root, const CheckpointMeta& meta, std::span<const NamedTensor> mine,
                         Communicator& world, const MeshCoords& coords) {
  fs::path final_path = root / step_directory_name(meta.step);
  const std::string doing = fmt::format("saving {}", final_path.string());
  const bool is_first = world.rank() == 0;
  Manifest manifest;
  manifest.meta = meta;

  // Agree on what is to be written before anything is.
  std::vector<NamedTensor> boxes;
  ShardTable table;
  std::vector<std::string> tables = gather_texts(world, doing, [&] {
    boxes = owned(mine, coords);
    table = table_of(boxes, world.rank());
    return encode(table);
  });
  fs::path temporary;
  try {
    manifest.save_id = gather_texts(world, doing, [&]() -> std::string {
                         if (!is_first) return {};
                         check(meta.step >= 0, "the step {} is negative", meta.step);
                         assemble(manifest, tables);
                         std::string id = random_id();
                         temporary = final_path.string() + ".tmp-" + id;
                         fs::create_directories(root);
                         check(fs::create_directory(temporary), "{} exists already", temporary.string());
                         return id;
                       }).front();
    temporary = final_path.string() + ".tmp-" + manifest.save_id;

    tables = gather_texts(world, doing, [&] {
      write_shard(temporary, manifest, boxes, table);
      return encode(table);
    });
    gather_texts(world, doing, [&]() -> std::string {
      if (!is_first) return {};
      assemble(manifest, tables);
      write_view(temporary, manifest);
      write_text(temporary / kManifestName, to_text(manifest));
      commit(temporary, final_path);
      return {};
    });
  } catch (...) {
    std::error_code ignored;
    if (is_first && !temporary.empty()) fs::remove_all(temporary, ignored);
    throw;
  }
  gather_texts(world, doing, [&]() -> std::string {
    if (is_first) update_latest(root, final_path);
    return {};
  });
  return final_path;
}

}  // namespace trifold
