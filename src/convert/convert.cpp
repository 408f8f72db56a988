// Converts a checkpoint to transformers' files.
#include "convert/convert.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "convert/tensor_files.h"
#include "convert/tokenizer_files.h"
#include "convert/transpose.h"
#include "core/read_json.h"
#include "files/scratch_folder.h"
#include "models/hugging_face/hugging_face.h"
#include "models/language_family.h"
#include "tasks/bert_samples.h"
#include "tokenize/tokenizer.h"
#include "train/checkpoint_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A tensor of the written files: part of a parameter.
struct WrittenPart {
  const WeightMap* map;
  DType dtype;
  int64_t first_row;  // first row in our parameter
  SafeTensor tensor;
  int64_t bytes;
};

std::vector<WrittenPart> parts_of(const std::vector<WeightMap>& maps, DType dtype) {
  std::vector<WrittenPart> parts;
  for (const WeightMap& map : maps) {
    int64_t row = 0;
    const DType written = map.exact ? accumulate_type(dtype) : dtype;
    for (const std::string& name : map.theirs) {
      WrittenPart part{
          &map, written, row, {name, std::string(safetensors_name(written)), map.their_shape()}, 0};
      part.bytes = map.rows_each() * map.columns() * static_cast<int64_t>(size_of(written));
      row += map.rows_each();
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

class Exporter {
 public:
  Exporter(CheckpointReader& from, int64_t bytes) : from_(from), bytes_(bytes) {}

  // Writes parts `chosen` to a new file.
  void write(const fs::path& path, const std::vector<WrittenPart>& parts, const std::vector<size_t>& chosen) {
    std::vector<SafeTensor> tensors;
    for (const size_t part : chosen) tensors.push_back(parts[part].tensor);
    SafetensorsWriter file(path, std::move(tensors));
    for (size_t i = 0; i < chosen.size(); ++i) {
      const WrittenPart& part = parts[chosen[i]];
      const WeightMap& map = *part.map;
      dtype_ = part.dtype;
      const auto step = std::max<int64_t>(1, bytes_ / (map.columns() * size()));
      for (int64_t row = 0; row < map.rows_each(); row += step)
        pass(file, i, part, row, std::min(map.rows_each(), row + step));
    }
    file.finish();
  }

 private:
  int64_t size() const { return static_cast<int64_t>(size_of(dtype_)); }

  // Copies rows [begin, end) of a part.
  void pass(const SafetensorsWriter& file, size_t index, const WrittenPart& part, int64_t begin,
            int64_t end) {
    const WeightMap& map = *part.map;
    const int64_t rows = end - begin;
    const int64_t count = rows * map.columns();
    const auto bytes = static_cast<size_t>(count * size());
    for (Buffer* buffer : {&read_, &turned_})
      if (buffer->bytes() < bytes) *buffer = Buffer(bytes);
    load(map, (part.first_row + begin) * map.columns(), count);
    if (!map.transposed) return file.write(index, begin * map.columns() * size(), read_.data(), bytes);
    transpose(turned_.data(), read_.data(), rows, map.columns(), static_cast<size_t>(size()));
    if (rows == map.rows_each()) return file.write(index, 0, turned_.data(), bytes);
    // Our rows are columns of the file's tensor.
    for (int64_t column = 0; column < map.columns(); ++column)
      file.write(index, (column * map.rows_each() + begin) * size(), turned_.data() + column * rows * size(),
                 static_cast<size_t>(rows * size()));
  }

  // Reads elements of a parameter, in memory order, into read_.
  void load(const WeightMap& map, int64_t first, int64_t count) {
    std::vector<NamedTensor> wanted;
    int64_t at = 0;
    for (const Rect& rect : rects_of_range(Rect::whole(map.shape), first, first + count)) {
      NamedTensor box;
      box.spec.name = "param/" + map.ours;
      box.spec.global = map.shape;
      box.spec.local = rect;
      box.data = {read_.data() + at * size(), dtype_, rect.extent};
      at += rect.elements();
      wanted.push_back(std::move(box));
    }
    from_.load(wanted, FloatConversion::Allow);
  }

  CheckpointReader& from_;
  DType dtype_ = DType::F32;  // type of the part that is being written
  int64_t bytes_;             // bytes of a buffer
  Buffer read_, turned_;
};

std::string library_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "float64";
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    default:
      return "float32";
  }
}

json config_of(const ModelConfig& model, const CheckpointReader& from, const DataConfig& data, DType dtype) {
  json config = to_hugging_face(model);
  config["torch_dtype"] = library_type(dtype);
  // The library's default ids belong to another vocabulary.
  std::optional<int32_t> end;
  std::unique_ptr<Tokenizer> tokenizer;
  if (data.tokenizer_type && data.tokenizer_type != TokenizerType::Null)
    tokenizer = make_tokenizer(data, false);
  if (tokenizer) end = tokenizer->eod();
  config["bos_token_id"] = config["eos_token_id"] = end ? json(*end) : json();
  if (tokenizer)
    if (const auto pad = language_family(model).pad_token(*tokenizer)) config["pad_token_id"] = *pad;
  // The ids of a model imported from the library are kept.
  const json& state = from.meta().state;
  const auto kept = state.find(kKeptFields);
  if (kept != state.end())
    for (const char* name : kTokenFields)
      if (kept->contains(name)) config[name] = kept->at(name);
  config[kOwnFields] = {
      {"step", from.meta().step}, {"seq_length", model.seq_length}, {"tokenizer", tokenizer_to_json(data)}};
  return config;
}

DType stored_type(const CheckpointReader& from, const ConvertConfig& config) {
  if (config.dtype) return *config.dtype;
  for (const TensorInfo& tensor : from.tensors())
    if (is_weight(tensor.name)) return tensor.dtype;
  bad_input("{} holds no weights", from.directory().string());
}

}  // namespace

bool is_hugging_face_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

Converted export_model(CheckpointReader& from, const ConvertConfig& config) {
  const ModelConfig model = language_model_of(from);
  const DType dtype = stored_type(from, config);
  DataConfig data;
  read_tokenizer_of(from, data);
  const json description = config_of(model, from, data, dtype);
  const std::vector<WeightMap> maps = weight_map(model);
  const std::vector<WrittenPart> parts = parts_of(maps, dtype);
  std::vector<WrittenTensor> written;
  for (const WrittenPart& part : parts) written.push_back({part.tensor.name, part.bytes});
  const TensorFiles files(written, config.max_file_size);

  const fs::path place = new_folder(config.save);
  const ScratchFolder scratch(place);
  const fs::path folder = scratch.file("model");
  fs::create_directory(folder);
  Exporter exporter(from, static_cast<int64_t>(config.max_memory * (1 << 20) / 4));
  for (size_t number = 0; number < files.size(); ++number)
    exporter.write(folder / files.name(number), parts, files.tensors(number));
  files.write_index(folder);
  write_text(folder / "config.json", json_text(description, 2) + "\n");
  const std::vector<FileToWrite> others = tokenizer_files_of(from, data);
  for (const FileToWrite& file : others) {
    fs::copy_file(file.from, folder / file.name);
    sync_to_disk(folder / file.name);
  }
  sync_to_disk(folder);
  scratch.move_out("model", place);
  sync_to_disk(place.parent_path());
  Converted done{from.directory().string(),
                 config.save,
                 static_cast<int64_t>(parts.size()),
                 static_cast<int64_t>(files.size()),
                 files.bytes(),
                 model,
                 data,
                 !others.empty()};
  return done;
}

}  // namespace trifold
