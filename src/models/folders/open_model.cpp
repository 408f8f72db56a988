#include "models/folders/open_model.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "checkpoint/convert_floats.h"
#include "config/commands/json.h"
#include "core/read_json.h"
#include "files/crc32.h"
#include "models/adapters/frozen_weights.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/tokenizer_files.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kWidest = 8;  // bytes of an element

std::string stored_name(const WeightMap& map) { return "param/" + map.ours; }

// A text that differs for folders with other options, tensors or sizes of files.
std::string digest_of(const HuggingFaceFolder& folder) {
  std::string text = json_text(to_json(folder.model())) + json_text(folder.kept());
  for (size_t i = 0; i < folder.maps().size(); ++i)
    for (const FolderTensor& part : folder.parts()[i])
      for (const SafeTensor* tensor : {part.values.tensor, part.scales.tensor})
        if (tensor != nullptr) text += fmt::format("{} {} {} ", tensor->name, tensor->dtype, tensor->begin);
  return fmt::format("{:08x}", crc32_of(0, text.data(), text.size()));
}

}  // namespace

FolderSource::FolderSource(std::shared_ptr<const HuggingFaceFolder> folder, int64_t bytes)
    : folder_(std::move(folder)), bytes_(bytes) {
  for (size_t i = 0; i < folder_->maps().size(); ++i) parameters_[stored_name(folder_->maps()[i])] = i;
}

void FolderSource::read(std::span<const NamedTensor> wanted) {
  for (const NamedTensor& box : wanted)
    if (box.data.elements() > 0) read_box(box, parameters_.at(box.spec.name));
}

// Reads a box as matrices of its last two dims, one for each index of the dims before.
void FolderSource::read_box(const NamedTensor& box, size_t parameter) {
  const Rect& local = box.spec.local;
  const Shape& global = box.spec.global;
  Columns columns{0, 1};
  int dims = global.rank();
  if (!folder_->maps()[parameter].vector) {
    --dims;
    columns = {local.offset[dims], local.extent[dims]};
  }
  // The dims before `outer` count the matrices; the rows of one follow each other.
  const int outer = dims - 1;
  const int64_t rows = local.extent[outer];
  int64_t matrices = 1;
  for (int dim = 0; dim < outer; ++dim) matrices *= local.extent[dim];
  const Tensor flat = box.data.flat();
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    int64_t first = 0, rest = matrix, scale = 1;
    for (int dim = outer - 1; dim >= 0; --dim) {
      first += (local.offset[dim] + rest % local.extent[dim]) * scale;
      rest /= local.extent[dim];
      scale *= global[dim];
    }
    first = first * global[outer] + local.offset[outer];
    const int64_t elements = rows * columns.count;
    read_rows(parameter, first, first + rows, columns, flat.rows(matrix * elements, (matrix + 1) * elements));
  }
}

// Reads rows [begin, end) of a parameter, of which each part has some.
void FolderSource::read_rows(size_t parameter, int64_t begin, int64_t end, Columns columns, Tensor to) {
  const WeightMap& map = folder_->maps()[parameter];
  auto* const elements = static_cast<std::byte*>(to.data);
  int64_t first = 0;  // the part's first row
  for (size_t i = 0; i < map.theirs.size(); ++i) {
    const TensorRows& part = map.theirs[i];
    const int64_t from = std::max(begin, first), until = std::min(end, first + part.rows());
    const auto step = std::max<int64_t>(1, bytes_ / (columns.count * kWidest));
    const FolderTensor& source = folder_->parts()[parameter][i];
    for (int64_t row = from; row < until; row += step) {
      const int64_t last = std::min(until, row + step), count = (last - row) * columns.count;
      const std::byte* read = reader_.read(map, part, source, row - first, last - first, columns);
      std::byte* const place =
          elements + static_cast<size_t>((row - begin) * columns.count) * size_of(to.dtype);
      if (source.dtype() == to.dtype)
        std::memcpy(place, read, static_cast<size_t>(count) * size_of(to.dtype));
      else
        convert_floats(place, to.dtype, read, source.dtype(), count);
    }
    first += part.rows();
  }
}

std::optional<std::string> former_family(const CheckpointReader& from) {
  const auto kept = from.meta().state.find(kKeptFields);
  if (kept == from.meta().state.end() || !kept->contains(kFamilyField)) return std::nullopt;
  const json& type = kept->at(kFamilyField);
  return type.is_string() ? std::optional(type.get<std::string>()) : std::nullopt;
}

DType weights_type(const HuggingFaceFolder& folder) {
  return folder.types().size() == 1 ? dtype_named(*folder.types().begin()) : DType::F32;
}

CheckpointReader reader_of(std::shared_ptr<const HuggingFaceFolder> folder, bool with_tokenizer) {
  Manifest manifest;
  manifest.save_id = fmt::format("{}{:08x}", digest_of(*folder), folder->digest_of_files());
  const DType dtype = weights_type(*folder);
  for (const WeightMap& map : folder->maps())
    manifest.tensors.push_back({stored_name(map), map.exact ? accumulate_type(dtype) : dtype, map.shape, {}});
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  CheckpointMeta& meta = manifest.meta;
  meta.model = to_json(folder->model());
  meta.mesh = {{"tp", 1}, {"dp", 1}, {"pp", 1}};
  meta.config = json::object();
  meta.state = {{"dtype", std::string(name_of(dtype))}, {kKeptFields, folder->kept()}};
  if (with_tokenizer) {
    DataConfig data = folder->data();
    const std::vector<fs::path> files = tokenizer_files_in(folder->path());
    name_tokenizer(files, data);
    meta.state["tokenizer"] = tokenizer_to_json(data);
    for (const fs::path& file : files)
      manifest.files.push_back({file.filename().string(), FileInfo::Role::Attachment,
                                static_cast<int64_t>(fs::file_size(file)), 0, 0});
  }
  fs::path path = folder->path();
  return CheckpointReader(std::move(path), std::move(manifest),
                          std::make_shared<FolderSource>(std::move(folder)));
}

CheckpointReader open_model(const fs::path& named, Newest newest,
                            const std::function<void(std::string)>& warn) {
  if (is_peft_folder(named)) return open_peft_folder(named);
  if (!is_hugging_face_folder(named)) return with_frozen_weights(CheckpointReader(named, newest));
  return reader_of(std::make_shared<const HuggingFaceFolder>(named, warn));
}

CheckpointReader open_weights(const fs::path& named) {
  if (is_peft_folder(named)) return open_peft_folder(named);
  if (!is_hugging_face_folder(named)) return with_frozen_weights(CheckpointReader(named));
  return reader_of(std::make_shared<const HuggingFaceFolder>(named), false);
}

}  // namespace trifold
