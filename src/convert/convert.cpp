// Converts a checkpoint to transformers' files.
#include "convert/convert.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "convert/tensor_files.h"
#include "core/read_json.h"
#include "files/scratch_folder.h"
#include "models/folders/open_model.h"
#include "models/folders/tokenizer_files.h"
#include "models/folders/transpose.h"
#include "models/hugging_face/hugging_face.h"
#include "models/language_family.h"
#include "tasks/bert_samples.h"
#include "tokenize/tokenizer.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Rows of a parameter that a written tensor holds.
struct WrittenRows {
  const WeightMap* map;
  const TensorRows* rows;
  int64_t first_row;  // their first row in our parameter
};

// A tensor of the written files.
struct WrittenWeight {
  SafeTensor tensor;
  DType dtype;
  int64_t bytes;
  std::vector<WrittenRows> parts;
};

std::vector<WrittenWeight> weights_of(const std::vector<WeightMap>& maps, DType dtype) {
  std::vector<WrittenWeight> weights;
  std::map<std::string, size_t> places;
  for (const WeightMap& map : maps) {
    int64_t row = 0;
    const DType written = map.exact ? accumulate_type(dtype) : dtype;
    for (const TensorRows& rows : map.theirs) {
      const auto [place, is_new] = places.try_emplace(rows.tensor, weights.size());
      if (is_new) {
        WrittenWeight weight{
            {rows.tensor, std::string(safetensors_name(written)), map.their_shape(rows)}, written, 0, {}};
        weight.bytes = rows.tensor_rows() * map.columns() * static_cast<int64_t>(size_of(written));
        weights.push_back(std::move(weight));
      }
      weights[place->second].parts.push_back({&map, &rows, row});
      row += rows.rows();
    }
  }
  return weights;
}

// Adds the copies of tensors that modules have.
void add_copies(std::vector<WrittenWeight>& weights, const std::vector<TiedTensors>& copies) {
  for (const TiedTensors& each : copies) {
    const auto from = std::find_if(weights.begin(), weights.end(), [&](const WrittenWeight& weight) {
      return weight.tensor.name == each.original;
    });
    if (from == weights.end()) fail("{} is not written, so {} cannot be its copy", each.original, each.copy);
    WrittenWeight same = *from;
    same.tensor.name = each.copy;
    weights.push_back(std::move(same));
  }
}

class Exporter {
 public:
  Exporter(CheckpointReader& from, int64_t bytes) : from_(from), bytes_(bytes) {}

  // Writes the tensors `chosen` to a new file.
  void write(const fs::path& path, const std::vector<WrittenWeight>& weights,
             const std::vector<size_t>& chosen) {
    std::vector<SafeTensor> tensors;
    for (const size_t index : chosen) tensors.push_back(weights[index].tensor);
    SafetensorsWriter file(path, std::move(tensors));
    for (size_t i = 0; i < chosen.size(); ++i) {
      dtype_ = weights[chosen[i]].dtype;
      for (const WrittenRows& part : weights[chosen[i]].parts) {
        const auto step = std::max<int64_t>(1, bytes_ / (part.map->columns() * size()));
        if (fills_groups(*part.rows)) {
          pass_groups(file, i, part, step);
          continue;
        }
        for (int64_t row = 0; row < part.rows->rows(); row += step)
          pass(file, i, part, row, std::min(part.rows->rows(), row + step));
      }
    }
    file.finish();
  }

 private:
  int64_t size() const { return static_cast<int64_t>(size_of(dtype_)); }

  // Whether the tensor has groups, and nothing but this part in them. Then whole groups are written at once, because
  // single rows of a group may be one element long.
  static bool fills_groups(const TensorRows& rows) {
    return rows.groups > 1 && rows.group_rows == rows.components * rows.width;
  }

  // Copies a part of whole groups, of about `step` rows at a time.
  void pass_groups(const SafetensorsWriter& file, size_t index, const WrittenRows& part, int64_t step) {
    const TensorRows& rows = *part.rows;
    const int64_t most = std::max<int64_t>(1, step / rows.group_rows);
    for (int64_t matrix = 0; matrix < rows.matrices; ++matrix)
      for (int64_t group = 0; group < rows.groups; group += most)
        pass_groups(file, index, part, matrix, group, std::min(rows.groups, group + most));
  }

  // Copies groups [begin, end) of a matrix.
  void pass_groups(const SafetensorsWriter& file, size_t index, const WrittenRows& part, int64_t matrix,
                   int64_t begin, int64_t end) {
    const WeightMap& map = *part.map;
    const TensorRows& of = *part.rows;
    const int64_t columns = map.columns(), rows = (end - begin) * of.group_rows;
    const int64_t each = of.width * columns * size();  // bytes of a component in a group
    take_buffers(rows * columns);
    for (int64_t component = 0; component < of.components; ++component) {
      const int64_t first = ((matrix * of.components + component) * of.groups + begin) * of.width;
      load(map, (part.first_row + first) * columns, (end - begin) * of.width * columns);
      for (int64_t group = 0; group < end - begin; ++group)
        std::memcpy(turned_.data() + (group * of.components + component) * each, read_.data() + group * each,
                    static_cast<size_t>(each));
    }
    const int64_t first = matrix * of.matrix_rows() + begin * of.group_rows;
    if (!map.transposed)
      return file.write(index, first * columns * size(), turned_.data(),
                        static_cast<size_t>(rows * columns * size()));
    transpose(read_.data(), turned_.data(), rows, columns, static_cast<size_t>(size()));
    std::swap(read_, turned_);
    write_columns(file, index, part, 0, rows, {first, rows});
  }

  void take_buffers(int64_t elements) {
    const auto bytes = static_cast<size_t>(elements * size());
    for (Buffer* buffer : {&read_, &turned_})
      if (buffer->bytes() < bytes) *buffer = Buffer(bytes);
  }

  // Copies rows [begin, end) of a part.
  void pass(const SafetensorsWriter& file, size_t index, const WrittenRows& part, int64_t begin,
            int64_t end) {
    const WeightMap& map = *part.map;
    const int64_t rows = end - begin;
    const int64_t count = rows * map.columns();
    take_buffers(count);
    load(map, (part.first_row + begin) * map.columns(), count);
    if (map.transposed)
      transpose(turned_.data(), read_.data(), rows, map.columns(), static_cast<size_t>(size()));
    for (int64_t row = begin; row < end;) {
      TensorRows::Run run = part.rows->run_at(row);
      run.count = run.stride == 1 ? std::min(run.count, end - row) : 1;
      if (map.transposed)
        write_columns(file, index, part, row - begin, rows, run);
      else
        file.write(index, run.first * map.columns() * size(),
                   read_.data() + (row - begin) * map.columns() * size(),
                   static_cast<size_t>(run.count * map.columns() * size()));
      row += run.count;
    }
  }

  // Writes a run of our rows, which are columns of the file's tensor, from row `at` of the `rows` rows in turned_.
  void write_columns(const SafetensorsWriter& file, size_t index, const WrittenRows& part, int64_t at,
                     int64_t rows, const TensorRows::Run& run) {
    const int64_t columns = part.map->columns(), all = part.rows->matrix_rows();
    const int64_t first = run.first % all, matrix = (run.first - first) * columns * size();
    if (run.count == all && run.count == rows)
      return file.write(index, matrix, turned_.data(), static_cast<size_t>(all * columns * size()));
    for (int64_t column = 0; column < columns; ++column)
      file.write(index, matrix + (column * all + first) * size(),
                 turned_.data() + (column * rows + at) * size(), static_cast<size_t>(run.count * size()));
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
  DType dtype_ = DType::F32;  // type of the tensor that is being written
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

json config_of(const ModelConfig& model, const HuggingFaceFamily& family, const CheckpointReader& from,
               DataConfig data, const std::vector<FileToWrite>& files, DType dtype) {
  json config = to_hugging_face(model, family);
  config["torch_dtype"] = library_type(dtype);
  // The library's default ids belong to another vocabulary.
  std::optional<int32_t> end;
  std::unique_ptr<Tokenizer> tokenizer;
  if (data.tokenizer_type && data.tokenizer_type != TokenizerType::Null)
    tokenizer = make_tokenizer(data, false);
  if (tokenizer) end = tokenizer->eod();
  json ids{{"bos_token_id", end ? json(*end) : json()},
           {"eos_token_id", end ? json(*end) : json()},
           {"pad_token_id", nullptr}};
  if (tokenizer)
    if (const auto pad = language_family(model).pad_token(*tokenizer)) ids["pad_token_id"] = *pad;
  // The ids of a model imported from the library are kept.
  const json& state = from.meta().state;
  const auto kept = state.find(kKeptFields);
  if (kept != state.end())
    for (const char* name : kTokenFields)
      if (kept->contains(name)) ids[name] = kept->at(name);
  // A family has written the ids on which its models depend.
  for (const auto& [name, id] : ids.items())
    if (!config.contains(name)) config[name] = id;
  name_files(files, data);
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

Converted export_model(CheckpointReader& from, const ConvertConfig& config) {
  const ModelConfig model = language_model_of(from);
  const HuggingFaceFamily& family = family_for(model, config.hugging_face_family, former_family(from));
  const DType dtype = stored_type(from, config);
  DataConfig data;
  read_tokenizer_of(from, data);
  const std::vector<FileToWrite> others = tokenizer_files_of(from, data);
  const json description = config_of(model, family, from, data, others, dtype);
  const std::vector<WeightMap> maps = weight_map(model, family);
  std::vector<WrittenWeight> weights = weights_of(maps, dtype);
  for (int64_t module = 0; module < model.mtp_num_layers; ++module)
    add_copies(weights, copies_in_module(model, family, module));
  std::vector<WrittenTensor> written;
  for (const WrittenWeight& weight : weights) written.push_back({weight.tensor.name, weight.bytes});
  const TensorFiles files(written, config.max_file_size);

  const fs::path place = new_folder(config.save);
  const ScratchFolder scratch(place);
  const fs::path folder = scratch.file("model");
  fs::create_directory(folder);
  Exporter exporter(from, static_cast<int64_t>(config.max_memory * (1 << 20) / 4));
  for (size_t number = 0; number < files.size(); ++number)
    exporter.write(folder / files.name(number), weights, files.tensors(number));
  files.write_index(folder);
  write_text(folder / "config.json", json_text(description, 2) + "\n");
  std::vector<std::string> names;
  for (const FileToWrite& file : others) {
    names.push_back(file.name);
    fs::copy_file(file.from, folder / file.name);
    sync_to_disk(folder / file.name);
  }
  sync_to_disk(folder);
  scratch.move_out("model", place);
  sync_to_disk(place.parent_path());
  Converted done{from.directory().string(),
                 config.save,
                 static_cast<int64_t>(weights.size()),
                 static_cast<int64_t>(files.size()),
                 files.bytes(),
                 model,
                 data,
                 data.tokenizer_model || have_tokenizer(names),
                 {},
                 &family};
  return done;
}

WriteModel model_writer(const CheckpointConfig& config) {
  return [dtype = config.save_hf_dtype, family = config.hugging_face_family](const fs::path& checkpoint,
                                                                             const fs::path& folder) {
    ConvertConfig convert;
    convert.load = checkpoint.string();
    convert.save = folder.string();
    convert.dtype = dtype;
    convert.hugging_face_family = family;
    CheckpointReader from = open_model(checkpoint);
    if (language_model_of(from).adapters.lora_rank)
      export_adapters(from, convert);
    else
      export_model(from, convert);
  };
}

}  // namespace trifold
