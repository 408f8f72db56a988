// Converts transformers' files to a checkpoint.
#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/convert_floats.h"
#include "checkpoint/new_checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/shard_file.h"
#include "config/commands/json.h"
#include "config/commands/validate.h"
#include "convert/convert.h"
#include "convert/tokenizer_files.h"
#include "convert/transpose.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/file.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kLettersAndDigits =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr JsonLimits kConfigLimits{int64_t{1} << 24};

// Reads the fields that our own export added.
void take_own_fields(const json& config, ModelConfig& model, DataConfig& data, const std::string& where) {
  if (!config.contains(kOwnFields)) return;
  const JsonView fields = JsonView(config).at(kOwnFields);
  try {
    model.seq_length = fields.at("seq_length").integer(1, int64_t{1} << 40);
    tokenizer_from_json(fields.at("tokenizer").value(), data);
  } catch (const std::exception& error) {
    bad_input("{}, '{}': {}", where, kOwnFields, error.what());
  }
}

// BadInput, with advice, if the weights are only in PyTorch's own format.
void expect_safetensors(const fs::path& folder, const json& config) {
  std::error_code ignored;
  const auto has = [&](std::string_view name) { return fs::exists(folder / name, ignored); };
  if (has(kSafetensorsName) || has(kSafetensorsIndexName)) return;
  const char* const name = has("pytorch_model.bin") ? "pytorch_model.bin" : "pytorch_model.bin.index.json";
  if (!has(name)) return;
  // Quoted as JSON, which Python reads too. Only names of classes go into the line.
  const std::string quoted = json(folder.string()).dump(-1, ' ', true, json::error_handler_t::replace);
  std::string kind = "AutoModel";
  const auto classes = config.find("architectures");
  if (classes != config.end() && classes->is_array() && !classes->empty() && classes->front().is_string()) {
    const auto& first = classes->front().get_ref<const std::string&>();
    const bool plain = first.size() < 100 && first.find_first_not_of(kLettersAndDigits) == std::string::npos;
    if (plain && !first.empty()) kind = first;
  }
  bad_input(
      "{} holds {}, a Python pickle, which is not supported; write model.safetensors next to it with "
      "transformers, then run this again:\n"
      "  python3 -c 'from transformers import {} as Model\n"
      "Model.from_pretrained({}).save_pretrained({}, safe_serialization=True)'",
      folder.string(), name, kind, quoted, quoted);
}

// The tensor named `name` in the files, without the prefix if the files come from a model without a head.
const SafetensorsModel::Entry* find_tensor(const SafetensorsModel& files, const std::string& name,
                                           const std::string& prefix) {
  const auto& tensors = files.tensors();
  auto found = tensors.find(name);
  if (found == tensors.end() && name.starts_with(prefix)) found = tensors.find(name.substr(prefix.size()));
  return found == tensors.end() ? nullptr : &found->second;
}

// The names in the files for a parameter: the first alternative of which a tensor exists.
const WeightMap* names_in(const SafetensorsModel& files, const WeightMap& map, const std::string& prefix) {
  const auto has_some = [&](const WeightMap& names) {
    return std::any_of(names.theirs.begin(), names.theirs.end(), [&](const TensorRows& rows) {
      return find_tensor(files, rows.tensor, prefix) != nullptr;
    });
  };
  if (has_some(map)) return &map;
  const auto other = std::find_if(map.others.begin(), map.others.end(), has_some);
  return other == map.others.end() ? &map : &*other;
}

// The location of each part of each parameter, in the order of the maps; all mismatches are reported at once.
struct Sources {
  std::vector<std::vector<SafetensorsModel::Entry>> parts;
  std::set<std::string> types;  // types of the weights that may have 16 bits
  int64_t tensors = 0;
  int64_t skipped = 0;  // tensors of layers that are left out
};

// Finds every tensor, or the tensor that stands in for it.
Sources find_all(const SafetensorsModel& files, const std::vector<WeightMap>& maps, const ModelConfig& model,
                 const HuggingFaceFamily& family, const std::map<std::string, std::string>& stand_ins,
                 const std::string& where) {
  Sources sources;
  std::vector<std::string> problems;
  std::set<std::string> used, seen;
  for (const WeightMap& map : maps) {
    sources.parts.emplace_back();
    for (const TensorRows& rows : map.theirs) {
      const std::string& name = rows.tensor;
      const bool is_new = seen.insert(name).second;  // several parameters may share it
      const auto other = stand_ins.find(name);
      const SafetensorsModel::Entry* entry =
          find_tensor(files, other == stand_ins.end() ? name : other->second, name_prefix(family));
      if (entry == nullptr) {
        if (is_new) problems.push_back(fmt::format("tensor {} is missing", name));
        continue;
      }
      sources.parts.back().push_back(*entry);
      if (!is_new) continue;
      const SafeTensor& tensor = *entry->tensor;
      used.insert(tensor.name);
      const std::vector<int64_t> shape = map.their_shape(rows);
      if (tensor.shape != shape)
        problems.push_back(fmt::format("tensor {} is [{}]; config.json makes it [{}]", tensor.name,
                                       fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
      const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
      if (!dtype || !is_float(*dtype))
        problems.push_back(fmt::format("tensor {} is of type {}; F32, F64, BF16 and F16 are supported",
                                       tensor.name, tensor.dtype));
      else if (!map.exact)
        sources.types.insert(std::string(name_of(*dtype)));
      ++sources.tensors;
    }
  }
  for (const auto& entry : files.tensors()) {
    if (is_skipped(entry.first, model, family)) ++sources.skipped;
    if (!used.contains(entry.first) && !is_no_parameter(entry.first, model, family))
      problems.push_back(fmt::format("tensor {} does not belong to the model", printable(entry.first)));
  }
  constexpr size_t kMostListed = 20;
  const size_t more = problems.size() - std::min(problems.size(), kMostListed);
  problems.resize(problems.size() - more);
  if (more > 0) problems.push_back(fmt::format("and {} more", more));
  if (!problems.empty())
    bad_input("{} does not match its config.json:\n  {}", where, fmt::join(problems, "\n  "));
  return sources;
}

// Copies parameters, some rows at a time.
class Importer {
 public:
  Importer(ShardFile& to, int64_t bytes) : to_(to), bytes_(bytes) {}

  void pass(size_t box, DType dtype, const WeightMap& map,
            const std::vector<SafetensorsModel::Entry>& parts) {
    dtype_ = dtype;
    for (size_t i = 0; i < parts.size(); ++i) {
      const TensorRows& rows = map.theirs[i];
      const auto step = std::max<int64_t>(1, bytes_ / (map.columns() * kWidest));
      for (int64_t row = 0; row < rows.rows(); row += step)
        pass(box, map, rows, parts[i], row, std::min(rows.rows(), row + step));
    }
  }

 private:
  static constexpr int64_t kWidest = 8;  // bytes of an element

  void pass(size_t box, const WeightMap& map, const TensorRows& part, const SafetensorsModel::Entry& source,
            int64_t begin, int64_t end) {
    const DType from = *dtype_of_safetensors(source.tensor->dtype);
    const auto size = static_cast<int64_t>(size_of(from));
    const int64_t rows = end - begin;
    const int64_t count = rows * map.columns();
    for (Buffer* buffer : {&read_, &turned_})
      if (buffer->bytes() < static_cast<size_t>(count * kWidest))
        *buffer = Buffer(static_cast<size_t>(count * kWidest));
    std::byte* elements = read_.data();
    std::byte* other = turned_.data();
    for (int64_t row = begin; row < end;) {
      TensorRows::Run run = part.run_at(row);
      run.count = std::min(run.count, end - row);
      if (map.transposed)
        read_columns(map, part, source, row - begin, rows, run, size);
      else
        source.file->read(*source.tensor, run.first * map.columns() * size,
                          elements + (row - begin) * map.columns() * size,
                          static_cast<size_t>(run.count * map.columns() * size));
      row += run.count;
    }
    if (map.transposed) {
      transpose(other, elements, map.columns(), rows, static_cast<size_t>(size));
      std::swap(elements, other);
    }
    if (from != dtype_) {
      convert_floats(other, dtype_, elements, from, count);
      elements = other;
    }
    to_.append(box, elements, static_cast<size_t>(count) * size_of(dtype_));
  }

  // Reads a run of our rows, which are columns of the file's tensor, to row `at` of the `rows` rows in read_, which is
  // [columns, rows].
  void read_columns(const WeightMap& map, const TensorRows& part, const SafetensorsModel::Entry& source,
                    int64_t at, int64_t rows, const TensorRows::Run& run, int64_t size) {
    const int64_t all = part.tensor_rows();
    if (run.count == all) {
      source.file->read(*source.tensor, 0, read_.data(), static_cast<size_t>(all * map.columns() * size));
      return;
    }
    for (int64_t column = 0; column < map.columns(); ++column)
      source.file->read(*source.tensor, (column * all + run.first) * size,
                        read_.data() + (column * rows + at) * size, static_cast<size_t>(run.count * size));
  }

  ShardFile& to_;
  DType dtype_ = DType::F32;  // type of the parameter that is being written
  int64_t bytes_;             // bytes of a buffer
  Buffer read_, turned_;
};

// Whether two tensors have the same values, in any types.
bool are_equal(const SafetensorsModel::Entry& a, const SafetensorsModel::Entry& b) {
  if (a.tensor->shape != b.tensor->shape) return false;
  const auto type_a = dtype_of_safetensors(a.tensor->dtype), type_b = dtype_of_safetensors(b.tensor->dtype);
  if (!type_a || !type_b || !is_float(*type_a) || !is_float(*type_b)) return false;
  constexpr int64_t kAtOnce = 1 << 16;
  const int64_t elements = a.tensor->bytes() / static_cast<int64_t>(size_of(*type_a));
  std::vector<double> read(kAtOnce), values_a(kAtOnce), values_b(kAtOnce);
  for (int64_t first = 0; first < elements; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, elements - first);
    const auto load = [&](const SafetensorsModel::Entry& entry, DType type, std::vector<double>& values) {
      const auto size = static_cast<int64_t>(size_of(type));
      entry.file->read(*entry.tensor, first * size, read.data(), static_cast<size_t>(count * size));
      convert_floats(values.data(), DType::F64, read.data(), type, count);
    };
    load(a, *type_a, values_a);
    load(b, *type_b, values_b);
    if (!std::equal(values_a.begin(), values_a.begin() + count, values_b.begin())) return false;
  }
  return true;
}

// Tied tensors, as transformers treats them: a missing one equals the other, and two that differ stay separate.
// Returns, for each missing tensor, the tensor that replaces it.
std::map<std::string, std::string> resolve_ties(const SafetensorsModel& files, ModelConfig& model,
                                                const HuggingFaceFamily& family, const std::string& where,
                                                const std::function<void(std::string)>& warn) {
  std::map<std::string, std::string> stand_ins;
  const std::string prefix = name_prefix(family);
  for (const auto& [copy, original] : tied_tensors(model, family)) {
    const auto* const one = find_tensor(files, copy, prefix);
    const auto* const other = find_tensor(files, original, prefix);
    if (one == nullptr) continue;
    if (other == nullptr) {
      stand_ins[original] = copy;
    } else if (!are_equal(*one, *other)) {
      const auto apart = untied(model, family);
      if (!apart)
        bad_input("{}: tensor {} has other values than {}; only models in which they are one are supported",
                  where, one->tensor->name, other->tensor->name);
      if (warn)
        warn(
            fmt::format("{} differs from {} although config.json ties them: the model gets both "
                        "(--untie-embeddings-and-output-weights)",
                        one->tensor->name, other->tensor->name));
      model = *apart;
    }
  }
  return stand_ins;
}

DType type_of_all(const std::set<std::string>& types, const ConvertConfig& config) {
  if (config.dtype) return *config.dtype;
  if (types.size() > 1)
    bad_input("the tensors of {} have the types {}: give --dtype for a common type", config.load,
              fmt::join(types, ", "));
  return dtype_named(*types.begin());
}

// The ids of special tokens: a number, or several.
json token_fields(const json& config, const std::string& where) {
  json ids = json::object();
  for (const char* name : kTokenFields) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null()) continue;
    const auto is_id = [](const json& value) { return value.is_number_integer(); };
    if (!is_id(*found) && !(found->is_array() && std::all_of(found->begin(), found->end(), is_id)))
      bad_input("{}: '{}' is {}; the id of a token is expected, or a list of ids", where, name,
                found->dump(-1, ' ', true, json::error_handler_t::replace));
    ids[name] = *found;
  }
  return ids;
}

CheckpointMeta meta_of(const ModelConfig& model, const HuggingFaceFamily& family, const DataConfig& data,
                       const json& tokens, DType dtype) {
  CheckpointMeta meta;
  meta.model = to_json(model);
  meta.mesh = {{"tp", 1}, {"dp", 1}, {"pp", 1}};
  meta.config = json::object();
  meta.state = {{"tokenizer", tokenizer_to_json(data)}, {"dtype", std::string(name_of(dtype))}};
  meta.state[kKeptFields] = tokens;
  meta.state[kKeptFields][kFamilyField] = type_of(family);
  return meta;
}

// BadInput if the folder belongs to a run, whose newer checkpoints readers would open instead. A conversion may be
// repeated.
void check_target(const std::string& save) {
  const auto there = checkpoints_in(save);
  if (!there.empty() && there.front().first > 0)
    bad_input("--save {} holds checkpoints of a run, the newest of step {}: give another --save", save,
              there.front().first);
}

}  // namespace

Converted import_model(const ConvertConfig& config, const std::function<void(std::string)>& warn) {
  const fs::path folder = config.load;
  const std::string where = (folder / "config.json").string();
  const json given = read_json_file(where, kConfigLimits);
  const HuggingFaceFamily& family = family_of_config(given, where);
  ModelConfig model = from_hugging_face(given, where);
  DataConfig data;
  take_own_fields(given, model, data, where);
  const json tokens = token_fields(given, where);
  const std::vector<fs::path> tokenizer = tokenizer_files_in(folder);
  const std::string problem = name_tokenizer(tokenizer, data);
  if (config.seq_length) model.seq_length = *config.seq_length;
  if (model.seq_length > *model.max_position_embeddings)
    bad_input("--seq-length {} is more than the {} positions of {}", model.seq_length,
              *model.max_position_embeddings, where);
  expect_safetensors(folder, given);
  const SafetensorsModel files(folder);
  look_for_pairs(model, family, [&](const std::string& tensor) { return files.tensors().contains(tensor); });
  const std::map<std::string, std::string> stand_ins =
      resolve_ties(files, model, family, folder.string(), warn);
  std::vector<WeightMap> maps;
  for (const WeightMap& map : weight_map(model, family))
    maps.push_back(*names_in(files, map, name_prefix(family)));
  place_in_tensors(maps);
  const Sources sources = find_all(files, maps, model, family, stand_ins, folder.string());
  const DType dtype = type_of_all(sources.types, config);

  std::vector<ShardBox> boxes;
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  for (const WeightMap& map : maps) {
    const DType stored = map.exact ? accumulate_type(dtype) : dtype;
    boxes.push_back({"param/" + map.ours, stored, map.shape, Rect::whole(map.shape)});
    bytes += boxes.back().bytes();
  }
  check_target(config.save);
  const SaveFolder target(config.save);
  const SaveOptions options{.run_id = random_id(), .folder = &target, .warn = warn};
  for (const std::string& warning : target.warnings()) options.report(warning);
  if (files.ignores_index())
    options.report(
        fmt::format("{} is not read, because there is a {}", kSafetensorsIndexName, kSafetensorsName));
  if (sources.skipped > 0)
    options.report(
        fmt::format("{} tensors of the layers after the model's {} are left out: they predict further tokens",
                    sources.skipped, model.num_layers));
  NewCheckpoint checkpoint(config.save, 0, bytes, options);
  ShardFile file(checkpoint.folder() / "shard_00000.h5", 0, boxes);
  Importer importer(file, static_cast<int64_t>(config.max_memory * (1 << 20) / 4));
  for (size_t i = 0; i < maps.size(); ++i) importer.pass(i, boxes[i].dtype, maps[i], sources.parts[i]);
  file.finish();
  for (size_t i = 0; i < boxes.size(); ++i)
    tensors.push_back({boxes[i].tensor, boxes[i].dtype, boxes[i].global, {file.piece(i)}});
  ManifestBuilder tables;
  tables.add(file.info(), tensors);
  for (const fs::path& attachment : tokenizer) tables.add(checkpoint.attach(attachment), {});
  checkpoint.commit(meta_of(model, family, data, tokens, dtype), tables);
  checkpoint.tidy_up();
  const fs::path made = fs::path(config.save) / step_directory_name(0);
  if (data.tokenizer_model) data.tokenizer_model = (made / *data.tokenizer_model).string();
  return {folder.string(),
          made.string(),
          sources.tensors,
          static_cast<int64_t>(files.files()),
          bytes,
          model,
          data,
          !tokenizer.empty(),
          problem};
}

}  // namespace trifold
