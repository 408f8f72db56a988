#include "models/folders/hugging_face_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "checkpoint/convert_floats.h"
#include "checkpoint/reader.h"
#include "checkpoint/save_folder.h"
#include "config/commands/json.h"
#include "core/memo.h"
#include "core/printable.h"
#include "core/read_json.h"

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

// A tensor of a file as it is now.
std::string state_of(const SafetensorsModel::Entry& entry) {
  std::error_code unknown;
  const fs::path path = fs::absolute(entry.file->path(), unknown);
  return fmt::format("{}\n{}\n{}\n", path.string(),
                     fs::last_write_time(path, unknown).time_since_epoch().count(), entry.tensor->name);
}

// The same, read once for all ranks of this process: each of them opens the folder.
bool are_known_equal(const SafetensorsModel& files, const SafetensorsModel::Entry& a,
                     const SafetensorsModel::Entry& b) {
  static Memo<std::string, bool> known;
  return known.of(fmt::format("{}{}{:08x}", state_of(a), state_of(b), files.digest()),
                  [&] { return are_equal(a, b); });
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
    } else if (!are_known_equal(files, *one, *other)) {
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

// A module reads what the modules before it compute, so the first one that has an embedding or an output weight of its own
// ends the modules that the model can have.
void drop_other_modules(const SafetensorsModel& files, ModelConfig& model, const HuggingFaceFamily& family,
                        const std::function<void(std::string)>& warn) {
  const std::string prefix = name_prefix(family);
  for (int64_t module = 0; module < model.mtp_num_layers; ++module)
    for (const auto& [copy, original] : copies_in_module(model, family, module)) {
      const auto* const one = find_tensor(files, copy, prefix);
      const auto* const other = find_tensor(files, original, prefix);
      if (one == nullptr || other == nullptr || are_equal(*one, *other)) continue;
      if (warn)
        warn(
            fmt::format("{} differs from {}, which a module that predicts further tokens shares: the model "
                        "gets {} of its {} modules",
                        one->tensor->name, other->tensor->name, module, model.mtp_num_layers));
      model.mtp_num_layers = module;
      return;
    }
}

// The name of the exponents that belong to the blocks of a tensor in MXFP4.
std::string scales_of(const std::string& blocks) {
  return blocks.substr(0, blocks.size() - kMxfp4Blocks.size()) + std::string(kMxfp4Scales);
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

}  // namespace

bool is_hugging_face_folder(const fs::path& folder) {
  std::error_code ignored;
  const auto has = [&](std::string_view name) { return fs::exists(folder / name, ignored); };
  if (!has("config.json")) {
    if (has(kSafetensorsName) && !has(kManifestName) && checkpoints_in(folder).empty())
      bad_input(
          "{} holds {} but no config.json, which says what model it is: put the model's config.json next to it",
          folder.string(), kSafetensorsName);
    return false;
  }
  if (!has(kManifestName) && checkpoints_in(folder).empty()) return true;
  if (has(kSafetensorsName) || has(kSafetensorsIndexName))
    bad_input(
        "{} is both {} and a Hugging Face model (config.json and safetensors files): "
        "move one of them to another folder",
        folder.string(),
        has(kManifestName) ? fmt::format("a checkpoint ({})", kManifestName)
                           : std::string("a folder of checkpoints (step_...)"));
  return false;  // another program's config.json
}

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder, const std::function<void(std::string)>& warn)
    : path_(folder) {
  const std::string where = (folder / "config.json").string();
  const json given = read_json_file(where, kConfigLimits);
  family_ = &family_of_config(given, where);
  model_ = from_hugging_face(given, where);
  take_own_fields(given, model_, data_, where);
  kept_ = token_fields(given, where);
  kept_[kFamilyField] = type_of(*family_);
  expect_safetensors(folder, given);
  files_ = std::make_unique<SafetensorsModel>(folder);
  if (warn && files_->ignores_index())
    warn(fmt::format("{} is not read, because there is a {}", kSafetensorsIndexName, kSafetensorsName));
  look_for_parts(model_, *family_,
                 [&](const std::string& tensor) { return files_->tensors().contains(tensor); });
  stand_ins_ = resolve_ties(*files_, model_, *family_, folder.string(), warn);
  drop_other_modules(*files_, model_, *family_, warn);
  for (const WeightMap& map : weight_map(model_, *family_))
    maps_.push_back(*names_in(*files_, map, name_prefix(*family_)));
  place_in_tensors(maps_);
  find_weights();
  if (warn && skipped_ > 0)
    warn(
        fmt::format("{} tensors of the layers after the model's {} are left out: they predict further tokens",
                    skipped_, model_.num_layers));
}

// Finds every tensor, or the tensor that stands in for it. All mismatches are reported at once.
void HuggingFaceFolder::find_weights() {
  std::vector<std::string> problems;
  std::set<std::string> used, seen;
  for (const WeightMap& map : maps_) {
    parts_.emplace_back();
    for (const TensorRows& rows : map.theirs) {
      const std::string& name = rows.tensor;
      const bool is_new = seen.insert(name).second;  // several parameters may share it
      const auto other = stand_ins_.find(name);
      const SafetensorsModel::Entry* entry =
          find_tensor(*files_, other == stand_ins_.end() ? name : other->second, name_prefix(*family_));
      if (entry == nullptr) {
        if (is_new) problems.push_back(fmt::format("tensor {} is missing", name));
        continue;
      }
      FolderTensor source{*entry};
      if (map.mxfp4) {
        const std::string scales = scales_of(name);
        const SafetensorsModel::Entry* found = find_tensor(*files_, scales, name_prefix(*family_));
        if (found == nullptr) {
          problems.push_back(fmt::format("tensor {} is missing", scales));
          continue;
        }
        source.scales = *found;
      }
      parts_.back().push_back(source);
      if (!is_new) continue;
      for (const SafeTensor* tensor : {source.values.tensor, source.scales.tensor}) {
        if (tensor == nullptr) continue;
        used.insert(tensor->name);
        ++tensors_;
      }
      const std::vector<std::string> wrong = problems_of(source, map.their_shape(rows));
      problems.insert(problems.end(), wrong.begin(), wrong.end());
      if (wrong.empty() && !map.exact) types_.insert(std::string(name_of(source.dtype())));
    }
  }
  for (const auto& entry : files_->tensors()) {
    if (is_skipped(entry.first, model_, *family_)) ++skipped_;
    if (!used.contains(entry.first) && !is_no_parameter(entry.first, model_, *family_))
      problems.push_back(fmt::format("tensor {} does not belong to the model", printable(entry.first)));
  }
  constexpr size_t kMostListed = 20;
  const size_t more = problems.size() - std::min(problems.size(), kMostListed);
  problems.resize(problems.size() - more);
  if (more > 0) problems.push_back(fmt::format("and {} more", more));
  if (!problems.empty())
    bad_input("{} does not match its config.json:\n  {}", path_.string(), fmt::join(problems, "\n  "));
}

}  // namespace trifold
