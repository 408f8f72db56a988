// Converts transformers' files to a checkpoint.
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/new_checkpoint.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/shard_file.h"
#include "config/commands/json.h"
#include "convert/convert.h"
#include "models/folders/hugging_face_folder.h"
#include "models/folders/open_model.h"
#include "models/folders/tokenizer_files.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Copies parameters, some rows at a time.
class Importer {
 public:
  Importer(std::shared_ptr<const HuggingFaceFolder> from, ShardFile& to, int64_t bytes)
      : from_(std::move(from), bytes), to_(to), bytes_(bytes) {}

  void pass(size_t index, const ShardBox& box, int64_t columns) {
    const auto size = static_cast<int64_t>(size_of(box.dtype));
    const int64_t elements = box.global.elements();
    const int64_t step = std::max<int64_t>(1, bytes_ / (columns * size)) * columns;
    for (int64_t first = 0; first < elements; first += step) {
      const int64_t count = std::min(step, elements - first);
      if (buffer_.bytes() < static_cast<size_t>(count * size))
        buffer_ = Buffer(static_cast<size_t>(count * size));
      std::vector<NamedTensor> wanted;
      std::byte* to = buffer_.data();
      for (const Rect& rect : rects_of_range(Rect::whole(box.global), first, first + count)) {
        NamedTensor part;
        part.spec.name = box.tensor;
        part.spec.global = box.global;
        part.spec.local = rect;
        part.data = {to, box.dtype, rect.extent};
        to += part.data.bytes();
        wanted.push_back(std::move(part));
      }
      from_.read(wanted);
      to_.append(index, buffer_.data(), static_cast<size_t>(count * size));
    }
  }

 private:
  FolderSource from_;
  ShardFile& to_;
  int64_t bytes_;  // bytes of a buffer
  Buffer buffer_;
};

DType type_of_all(const HuggingFaceFolder& folder, const ConvertConfig& config) {
  if (config.dtype) return *config.dtype;
  if (folder.types().size() > 1)
    bad_input("the tensors of {} have the types {}: give --dtype for a common type", config.load,
              fmt::join(folder.types(), ", "));
  return weights_type(folder);
}

}  // namespace

void check_conversion_target(const std::string& save) {
  const auto there = checkpoints_in(save);
  if (!there.empty() && there.front().first > 0)
    bad_input("--save {} holds checkpoints of a run, the newest of step {}: give another --save", save,
              there.front().first);
}

Converted import_model(const ConvertConfig& config, const std::function<void(std::string)>& warn) {
  const auto folder = std::make_shared<const HuggingFaceFolder>(config.load, warn);
  CheckpointMeta meta = reader_of(folder, false).meta();
  DataConfig data = folder->data();
  const std::vector<fs::path> tokenizer = tokenizer_files_in(folder->path());
  const std::string problem = name_tokenizer(tokenizer, data);
  ModelConfig model = folder->model();
  if (config.seq_length) model.seq_length = *config.seq_length;
  if (model.seq_length > *model.max_position_embeddings)
    bad_input("--seq-length {} is more than the {} positions of {}", model.seq_length,
              *model.max_position_embeddings, (folder->path() / "config.json").string());
  const DType dtype = type_of_all(*folder, config);
  meta.model = to_json(model);
  meta.state["tokenizer"] = tokenizer_to_json(data);
  meta.state["dtype"] = std::string(name_of(dtype));

  std::vector<ShardBox> boxes;
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  for (const WeightMap& map : folder->maps()) {
    const DType stored = map.exact ? accumulate_type(dtype) : dtype;
    boxes.push_back({"param/" + map.ours, stored, map.shape, Rect::whole(map.shape)});
    bytes += boxes.back().bytes();
  }
  check_conversion_target(config.save);
  const SaveFolder target(config.save);
  const SaveOptions options{.run_id = random_id(), .folder = &target, .warn = warn};
  for (const std::string& warning : target.warnings()) options.report(warning);
  NewCheckpoint checkpoint(config.save, 0, bytes, options);
  ShardFile file(checkpoint.folder() / "shard_00000.h5", 0, boxes);
  Importer importer(folder, file, static_cast<int64_t>(config.max_memory * (1 << 20) / 4));
  for (size_t i = 0; i < boxes.size(); ++i) importer.pass(i, boxes[i], folder->maps()[i].columns());
  file.finish();
  for (size_t i = 0; i < boxes.size(); ++i)
    tensors.push_back({boxes[i].tensor, boxes[i].dtype, boxes[i].global, {file.piece(i)}});
  ManifestBuilder tables;
  tables.add(file.info(), tensors);
  for (const fs::path& attachment : tokenizer) tables.add(checkpoint.attach(attachment), {});
  checkpoint.commit(meta, tables);
  checkpoint.tidy_up();
  std::vector<std::string> names;
  for (const fs::path& copied : tokenizer) names.push_back(copied.filename().string());
  const fs::path made = fs::path(config.save) / step_directory_name(0);
  if (data.tokenizer_model) data.tokenizer_model = (made / *data.tokenizer_model).string();
  return {folder->path().string(),
          made.string(),
          folder->tensors(),
          static_cast<int64_t>(folder->files()),
          bytes,
          model,
          data,
          have_tokenizer(names),
          problem};
}

}  // namespace trifold
