#include "models/adapters/peft_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/convert_floats.h"
#include "checkpoint/safetensors.h"
#include "config/commands/json.h"
#include "config/fields/adapter_targets.h"
#include "config/subjects/model_family.h"
#include "core/error.h"
#include "core/read_json.h"
#include "files/crc32.h"
#include "files/file.h"
#include "models/adapters/adapter_modules.h"
#include "models/adapters/frozen_weights.h"
#include "models/folders/open_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr JsonLimits kPeftLimits{int64_t{1} << 22};
constexpr std::string_view kModelPrefix = "base_model.model.";
constexpr const char* kGaussian = "gaussian";

std::string module_of_tensor(const std::string& tensor) {
  constexpr std::string_view kEnd = ".weight";
  return tensor.ends_with(kEnd) ? tensor.substr(0, tensor.size() - kEnd.size()) : tensor;
}

// The layers of transformers that one of our modules adapts, and where each begins in the module's outputs.
struct TheirLayers {
  AdaptedModule module;
  struct Part {
    std::string name;  // "model.layers.0.self_attn.q_proj"
    int64_t first, outputs;
  };
  std::vector<Part> parts;
  int64_t inputs = 0, outputs = 0;
  bool transposed = false;  // their weight is [in, out]
};

// BadInput if the outputs of the module are no whole layers of transformers.
TheirLayers their_layers(const AdaptedModule& module, const std::vector<WeightMap>& maps) {
  const auto map = std::find_if(maps.begin(), maps.end(),
                                [&](const WeightMap& each) { return each.ours == module.weight; });
  if (map == maps.end()) fail("no tensor of transformers holds {}", module.weight);
  TheirLayers layers{module, {}, map->columns(), 0, map->transposed};
  const int64_t rows = map->rows() / module.groups;
  const int64_t begin = module.group.value_or(0) * rows;
  const int64_t end = module.group ? begin + rows : map->rows();
  layers.outputs = end - begin;
  int64_t first = 0;
  for (const TensorRows& part : map->theirs) {
    const int64_t until = first + part.rows();
    const bool inside = first >= begin && until <= end;
    if (!inside && first < end && until > begin)
      bad_input(
          "{} has an adapter of its own, but transformers has one layer for it and its neighbours, {}: train with one "
          "adapter for the packed layer, --lora-targets qkv (or gate_up) and the others",
          module.name, module_of_tensor(part.tensor));
    if (inside && (part.groups > 1 || part.matrices > 1 || part.rows() != part.tensor_rows()))
      bad_input("{}: the rows of transformers' {} have another order, in which adapters are not converted",
                module.name, part.tensor);
    if (inside) layers.parts.push_back({module_of_tensor(part.tensor), first - begin, part.rows()});
    first = until;
  }
  return layers;
}

json read_config(const fs::path& folder) {
  const fs::path path = folder / kPeftConfigName;
  json config = read_json_file(path.string(), kPeftLimits);
  if (!config.is_object()) bad_input("{} is no JSON object", path.string());
  for (auto it = config.begin(); it != config.end();) it = it->is_null() ? config.erase(it) : std::next(it);
  return config;
}

// Lists what peft can do and is not computed here.
void expect_supported(const json& config, const std::string& where) {
  std::vector<std::string> problems;
  const auto value = [&](const char* name) { return config.value(name, json()); };
  const auto must_be = [&](const char* name, const json& wanted) {
    const json found = value(name);
    if (!found.is_null() && found != wanted && !(found.is_structured() && found.empty()))
      problems.push_back(
          fmt::format("'{}' is {}, but only {} is supported", name, json_text(found), json_text(wanted)));
  };
  if (value("peft_type") != "LORA")
    problems.push_back(
        fmt::format("'peft_type' is {}, but only \"LORA\" is supported", json_text(value("peft_type"))));
  must_be("bias", "none");
  for (const char* name : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
                           "trainable_token_indices", "target_parameters", "alora_invocation_tokens"})
    must_be(name, nullptr);
  for (const char* name : {"lora_bias", "use_qalora"}) must_be(name, false);
  // Others subtract the first adapters from the weights of the base model, which a folder of adapters does not hold.
  const json init = value("init_lora_weights");
  const bool keeps_weights =
      init.is_null() || init.is_boolean() || init == kGaussian || init == "orthogonal" || init == "eva";
  if (!keeps_weights)
    problems.push_back(fmt::format(
        "'init_lora_weights' is {}, by which peft changes the weights of the base model; convert the adapters with "
        "peft's save_pretrained(path_initial_model_for_weight_conversion=...)",
        json_text(init)));
  for (const char* name : {"use_rslora", "use_dora"})
    if (!value(name).is_null() && !value(name).is_boolean())
      problems.push_back(fmt::format("'{}' is no boolean", name));
  if (!value("lora_dropout").is_null() && !value("lora_dropout").is_number())
    problems.emplace_back("'lora_dropout' is no number");
  if (!value("r").is_number_integer() || value("r") < 1) problems.emplace_back("'r' is no rank");
  if (!value("lora_alpha").is_number() || !(value("lora_alpha") > 0))
    problems.emplace_back("'lora_alpha' is no number above 0");
  if (!value("base_model_name_or_path").is_string())
    problems.emplace_back("'base_model_name_or_path' names no model");
  if (!problems.empty()) bad_input("{}: {}", where, fmt::join(problems, "; "));
}

fs::path base_of(const fs::path& folder, const json& config) {
  const fs::path named = config["base_model_name_or_path"].get<std::string>();
  std::error_code missing;
  for (const fs::path& place : {folder / named, named})
    if (fs::exists(place, missing)) return place;
  bad_input(
      "{}: 'base_model_name_or_path' is {}, which is no folder here: download the model, and write its folder there",
      (folder / kPeftConfigName).string(), named.string());
}

// Reads the adapters of our modules from their tensors.
class PeftSource final : public TensorSource {
 public:
  PeftSource(std::shared_ptr<const SafetensorsFile> file, std::map<std::string, const SafeTensor*> places)
      : file_(std::move(file)), places_(std::move(places)) {}

  void read(std::span<const NamedTensor> wanted) override {
    for (const NamedTensor& box : wanted) {
      if (box.data.elements() == 0) continue;
      const SafeTensor& tensor = *places_.at(box.spec.name);
      const DType dtype = *dtype_of_safetensors(tensor.dtype);
      Buffer whole(static_cast<size_t>(tensor.bytes()));
      file_->read(tensor, 0, whole.data(), whole.bytes());
      const size_t size = size_of(dtype);
      Buffer part(static_cast<size_t>(box.data.elements()) * size);
      copy_rect(part.data(), box.spec.local, whole.data(), Rect::whole(box.spec.global), box.spec.local,
                size);
      convert_floats(box.data.data, box.data.dtype, part.data(), dtype, box.data.elements());
    }
  }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
  std::map<std::string, const SafeTensor*> places_;
};

// The tensors of the file by module and kind, "lora_A", "lora_B" or "lora_magnitude_vector".
std::map<std::string, std::map<std::string, const SafeTensor*>> tensors_of_modules(
    const SafetensorsFile& file) {
  std::map<std::string, std::map<std::string, const SafeTensor*>> modules;
  for (const SafeTensor& tensor : file.tensors()) {
    std::string name = module_of_tensor(tensor.name);
    const size_t dot = name.rfind('.');
    if (!name.starts_with(kModelPrefix) || dot == std::string::npos)
      bad_input("{}: the tensor {} is no adapter's", file.path().string(), tensor.name);
    modules[name.substr(kModelPrefix.size(), dot - kModelPrefix.size())][name.substr(dot + 1)] = &tensor;
  }
  return modules;
}

// The model's shape of a parameter with `width` columns for each output, or without columns.
Shape shape_of_outputs(const TheirLayers& layers, std::optional<int64_t> width) {
  const int64_t groups = layers.module.group ? 1 : layers.module.groups;
  if (groups == 1) return width ? Shape{layers.outputs, *width} : Shape{layers.outputs};
  const int64_t each = layers.outputs / groups;
  return width ? Shape{groups, each, *width} : Shape{groups, each};
}

}  // namespace

bool is_peft_folder(const fs::path& folder) {
  std::error_code missing;
  return fs::is_regular_file(folder / kPeftConfigName, missing);
}

CheckpointReader open_peft_folder(const fs::path& folder) {
  const std::string where = (folder / kPeftConfigName).string();
  const json config = read_config(folder);
  expect_supported(config, where);
  const fs::path place = base_of(folder, config);
  if (is_peft_folder(place)) bad_input("{}: the base model, {}, has adapters already", where, place.string());
  CheckpointReader base = open_model(place);
  ModelConfig model = model_from_json(base.meta().model);
  if (model.adapters.lora_rank) bad_input("{}: the base model has adapters already", where);
  const HuggingFaceFamily& family = family_for(model, {}, former_family(base));
  const std::vector<WeightMap> maps = weight_map(model, family);
  const auto file = std::make_shared<const SafetensorsFile>(folder / kPeftWeightsName);
  const auto theirs = tensors_of_modules(*file);

  model.adapters.lora_rank = config["r"].get<int64_t>();
  model.adapters.lora_alpha = config["lora_alpha"].get<double>();
  model.adapters.lora_dropout = config.value("lora_dropout", 0.0);
  if (config.value("use_rslora", false)) model.adapters.lora_scaling = LoraScaling::RankStabilized;
  model.adapters.dora = config.value("use_dora", false);
  if (config.value("init_lora_weights", json()) == kGaussian) model.adapters.lora_init = LoraInit::Gaussian;

  Manifest manifest;
  manifest.meta = base.meta();
  std::map<std::string, const SafeTensor*> places;
  std::vector<std::string> problems;
  std::set<std::string> used;
  const auto add = [&](const std::string& name, const Shape& shape, const std::string& layer,
                       const char* kind) {
    const auto found = theirs.at(layer).find(kind);
    const std::vector<int64_t> flat = shape.rank() == 3 ? std::vector<int64_t>{shape[0] * shape[1], shape[2]}
                                      : shape.rank() == 2 && std::string_view(kind) == "lora_magnitude_vector"
                                          ? std::vector<int64_t>{shape[0] * shape[1]}
                                      : shape.rank() == 2 ? std::vector<int64_t>{shape[0], shape[1]}
                                                          : std::vector<int64_t>{shape[0]};
    if (found == theirs.at(layer).end()) {
      problems.push_back(fmt::format("{} has no {}", layer, kind));
      return;
    }
    const SafeTensor& tensor = *found->second;
    const auto dtype = dtype_of_safetensors(tensor.dtype);
    if (tensor.shape != flat || !dtype || !is_float(*dtype))
      return problems.push_back(fmt::format("{} is {} [{}], not a floating-point tensor [{}]", tensor.name,
                                            tensor.dtype, fmt::join(tensor.shape, ", "),
                                            fmt::join(flat, ", ")));
    manifest.tensors.push_back({name, *dtype, shape, {}});
    places[name] = &tensor;
  };
  // Every module that the file may have: each part of a layer, and each packed layer whole.
  ModelConfig all = model;
  for (const LinearModules& layer : linear_modules(model)) {
    std::vector<std::string> names = layer.parts;
    if (layer.parts.size() > 1) names.push_back(layer.whole);
    for (const std::string& name : names) {
      all.adapters.lora_targets = {name};
      for (const AdaptedModule& module : adapted_modules(all)) {
        if (module.name != name) continue;
        const auto map = std::find_if(maps.begin(), maps.end(),
                                      [&](const WeightMap& each) { return each.ours == module.weight; });
        const size_t pieces = map == maps.end() ? 0 : map->theirs.size();
        if (pieces != (module.group ? static_cast<size_t>(module.groups) : 1)) continue;
        const TheirLayers layers = their_layers(module, maps);
        const std::string& their = layers.parts.front().name;
        if (!theirs.contains(their)) continue;
        used.insert(their);
        model.adapters.lora_targets.push_back(name);
        add(module.a(), {*model.adapters.lora_rank, layers.inputs}, their, "lora_A");
        add(module.b(), shape_of_outputs(layers, *model.adapters.lora_rank), their, "lora_B");
        if (model.adapters.dora)
          add(module.magnitude(), shape_of_outputs(layers, {}), their, "lora_magnitude_vector");
      }
    }
  }
  for (const auto& [layer, tensors] : theirs)
    if (!used.contains(layer))
      problems.push_back(fmt::format("{} is no linear layer that can have adapters here", layer));
  if (!problems.empty()) bad_input("{}: {}", file->path().string(), fmt::join(problems, "; "));
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  manifest.meta.model = to_json(model);
  const std::string description = json_text(manifest.meta.model);
  manifest.save_id =
      fmt::format("{:08x}{:08x}{}", file->digest(64), crc32_of(0, description.data(), description.size()),
                  base.manifest().save_id);
  manifest.files = base.manifest().files;
  std::erase_if(manifest.files, [](const FileInfo& each) { return each.role != FileInfo::Role::Attachment; });
  CheckpointReader adapters(folder, std::move(manifest),
                            std::make_shared<PeftSource>(file, std::move(places)), base.attachments());
  return joined(std::move(adapters), std::move(base));
}

namespace {

void expect_no_task_head(const ModelConfig& model) {
  if (has_task_head(model))
    bad_input(
        "the trained head of the task has no place in a folder of adapters: write the whole model, by "
        "trifold convert --merge-adapters");
}

}  // namespace

void expect_peft_layers(const ModelConfig& model, const std::optional<std::string>& family,
                        const std::optional<std::string>& former) {
  expect_no_task_head(model);
  ModelConfig plain = model;
  plain.adapters = {};
  const std::vector<WeightMap> maps = weight_map(plain, family_for(plain, family, former));
  for (const AdaptedModule& module : adapted_modules(model)) their_layers(module, maps);
}

WrittenAdapters write_peft_folder(CheckpointReader& from, const fs::path& folder, DType dtype,
                                  const std::optional<std::string>& family) {
  const ModelConfig model = model_from_json(from.meta().model);
  expect_no_task_head(model);
  ModelConfig plain = model;
  plain.adapters = {};
  const HuggingFaceFamily& written = family_for(plain, family, former_family(from));
  const std::vector<WeightMap> maps = weight_map(plain, written);
  struct Piece {
    std::string from;
    int64_t begin, end;  // rows, or elements of a vector
    bool vector;
  };
  std::vector<SafeTensor> tensors;
  std::vector<Piece> pieces;
  std::set<std::string> targets;
  bool transposed = false;
  const int64_t rank = *model.adapters.lora_rank;
  for (const AdaptedModule& module : adapted_modules(model)) {
    const TheirLayers layers = their_layers(module, maps);
    transposed = transposed || layers.transposed;
    for (const TheirLayers::Part& part : layers.parts) {
      const std::string name = std::string(kModelPrefix) + part.name;
      const auto add = [&](const char* kind, std::vector<int64_t> shape, Piece piece) {
        tensors.push_back({name + kind, std::string(safetensors_name(dtype)), std::move(shape)});
        pieces.push_back(std::move(piece));
      };
      const int64_t end = part.first + part.outputs;
      add(".lora_A.weight", {rank, layers.inputs}, {module.a(), 0, rank, false});
      add(".lora_B.weight", {part.outputs, rank}, {module.b(), part.first, end, false});
      if (model.adapters.dora)
        add(".lora_magnitude_vector", {part.outputs}, {module.magnitude(), part.first, end, true});
      targets.insert(part.name);
    }
  }
  WrittenAdapters done{std::ssize(tensors), 0};
  SafetensorsWriter file(folder / kPeftWeightsName, tensors);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    std::vector<double> values;
    if (piece.vector) {
      const ReadMatrix all = read_matrix(from, piece.from);
      values.assign(all.values.begin() + piece.begin, all.values.begin() + piece.end);
    } else {
      values = read_rows(from, piece.from, piece.begin, piece.end).values;
    }
    Buffer out(values.size() * size_of(dtype));
    convert_floats(out.data(), dtype, values.data(), DType::F64, std::ssize(values));
    file.write(i, 0, out.data(), out.bytes());
    done.bytes += static_cast<int64_t>(out.bytes());
  }
  file.finish();
  const json& state = from.meta().state;
  const json base = state.contains(kFrozenWeights) ? state[kFrozenWeights].value("path", json()) : json();
  const json config{
      {"peft_type", "LORA"},
      {"task_type", family_of_model(model).causal ? json("CAUSAL_LM") : json()},
      {"base_model_name_or_path", base},
      {"inference_mode", true},
      {"r", rank},
      {"lora_alpha", model.adapters.lora_alpha.value_or(static_cast<double>(rank))},
      {"lora_dropout", model.adapters.lora_dropout},
      {"use_rslora", model.adapters.lora_scaling == LoraScaling::RankStabilized},
      {"use_dora", model.adapters.dora},
      {"init_lora_weights", model.adapters.lora_init == LoraInit::Gaussian ? json(kGaussian) : json(true)},
      {"fan_in_fan_out", transposed},
      {"bias", "none"},
      {"target_modules", targets}};
  write_text(folder / kPeftConfigName, json_text(config, 2) + "\n");
  return done;
}

}  // namespace trifold
