#include "models/hugging_face/hugging_face.h"

#include <algorithm>
#include <map>

#include "config/commands/validate.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"
#include "models/language_model.h"

namespace trifold {

namespace {

using nlohmann::json;

// The names of an entry, expanded for every expert in order.
std::vector<std::string> expanded(const TensorNames::Names& names, int64_t experts,
                                  const std::string& prefix) {
  const bool each = !names.empty() && names.front().find('*') != std::string_view::npos;
  std::vector<std::string> result;
  for (int64_t expert = 0; expert < (each ? experts : 1); ++expert)
    for (std::string name : std::vector<std::string>(names.begin(), names.end())) {
      if (each) name.replace(name.find('*'), 1, std::to_string(expert));
      result.push_back(prefix + name);
    }
  return result;
}

// Gives a map the tensors of an entry, which hold equal parts of its rows.
void set_tensors(WeightMap& map, std::vector<std::string> tensors, const TensorNames::Entry& entry,
                 const ModelConfig& model) {
  TensorRows rows;
  rows.components = entry.components;
  if (entry.groups != nullptr) rows.groups = entry.groups(model);
  if (map.fused) rows.matrices = map.shape[0];
  const int64_t parts = rows.matrices * rows.components * rows.groups * static_cast<int64_t>(tensors.size());
  rows.width = map.rows() / parts;
  if (rows.width * parts != map.rows())
    fail("the {} rows of {} are not {} equal parts", map.rows(), map.ours, parts);
  map.theirs.clear();
  for (std::string& tensor : tensors) {
    rows.tensor = std::move(tensor);
    map.theirs.push_back(rows);
  }
}

WeightMap map_of(const std::string& ours, const Shape& shape, const TensorNames& names,
                 const ModelConfig& model) {
  WeightMap map{
      ours, shape, {}, false, shape.rank() == 1 || ours.ends_with(".bias") || ours.ends_with(".gain")};
  std::string_view rest = ours;
  std::string before = names.prefix;
  const bool in_module = ours.starts_with("mtp."), in_block = in_module || ours.starts_with("block.");
  if (in_block) {
    rest.remove_prefix(rest.find('.') + 1);
    const size_t dot = rest.find('.');
    const int64_t number = std::stoll(std::string(rest.substr(0, dot))) + (in_module ? model.num_layers : 0);
    before += fmt::format("{}{}.", names.block, number);
    rest.remove_prefix(dot + 1);
  }
  const int64_t experts = model.num_experts.value_or(0);
  const auto take = [&](const std::vector<TensorNames::Entry>& entries, const std::string& prefix) {
    for (const TensorNames::Entry& entry : entries) {
      if (entry.ours != rest) continue;
      map.fused = entry.stacked;
      map.transposed = entry.transposed;
      set_tensors(map, expanded(entry.theirs, experts, prefix), entry, model);
      const WeightMap plain = map;
      for (const TensorNames::Names& also : entry.also) {
        WeightMap other = plain;
        other.fused = shape.rank() > 2 && also.size() == 1 && also.front().find('*') == also.front().npos;
        set_tensors(other, expanded(also, experts, prefix), entry, model);
        map.others.push_back(std::move(other));
      }
      if (entry.mxfp4.empty()) continue;
      WeightMap quantised = plain;
      quantised.mxfp4 = true;
      quantised.transposed = false;
      set_tensors(quantised, {prefix + std::string(entry.mxfp4) + std::string(kMxfp4Blocks)}, entry, model);
      map.others.push_back(std::move(quantised));
    }
  };
  if (in_module) take(names.in_module, before);
  if (map.theirs.empty()) take(in_block ? names.in_block : names.outside, before);
  if (!in_block) take(names.head, "");
  if (map.theirs.empty() && ours == "head.weight")
    set_tensors(map, {"lm_head.weight"}, {"head.weight", {}}, model);
  if (!map.theirs.empty()) return map;
  fail("the parameter {} has no name in transformers", ours);
}

// Resolves the model by the rules of a training run, independently of a mesh.
ModelConfig resolved(ModelConfig model) {
  PlanConfig plan;
  plan.run.model = std::move(model);
  plan.run.batch.micro_batch_size = 1;
  return resolve(std::move(plan)).run.model;
}

}  // namespace

TensorRows::Run TensorRows::run_at(int64_t row) const {
  const int64_t all = components * groups * width;
  const int64_t begin = row / all * matrix_rows() + offset;
  row %= all;
  if (groups == 1) return {begin + row, all - row};
  const int64_t component = row / (groups * width), group = row / width % groups, within = row % width;
  const int64_t first = begin + group * group_rows + component * width + within;
  if (width == 1) return {first, groups - group, group_rows};
  return {first, width - within};
}

std::vector<int64_t> WeightMap::their_shape(const TensorRows& part) const {
  const int64_t rows = part.matrix_rows();
  if (fused && vector) return {part.matrices, rows};
  if (fused && transposed) return {part.matrices, columns(), rows};
  if (fused) return {part.matrices, rows, columns()};
  if (vector) return {rows};
  if (transposed) return {columns(), rows};
  return {rows, columns()};
}

void place_in_tensors(std::vector<WeightMap>& maps) {
  struct Tensor {
    int64_t matrices, groups, group_rows;
  };
  std::map<std::string, Tensor> tensors;
  for (WeightMap& map : maps)
    for (TensorRows& rows : map.theirs) {
      Tensor& tensor = tensors.try_emplace(rows.tensor, Tensor{rows.matrices, rows.groups, 0}).first->second;
      if (tensor.groups != rows.groups || tensor.matrices != rows.matrices)
        fail("{} has {} matrices of {} groups of rows, and {} of {} in {}", rows.tensor, tensor.matrices,
             tensor.groups, rows.matrices, rows.groups, map.ours);
      rows.offset = tensor.group_rows;
      tensor.group_rows += rows.components * rows.width;
    }
  for (WeightMap& map : maps)
    for (TensorRows& rows : map.theirs) rows.group_rows = tensors.at(rows.tensor).group_rows;
}

std::vector<WeightMap> weight_map(const ModelConfig& model, const HuggingFaceFamily& family) {
  const Model whole = make_model(model, Mesh(MeshSizes{}, MeshCoords{}), 0);
  std::vector<WeightMap> maps;
  for (const ParamSpec& param : whole.params.specs()) {
    if (param.tied_to) continue;
    Shape shape = param.shard.global;
    if (param.rows) shape[0] = *param.rows;
    maps.push_back(map_of(param.shard.name, shape, family.names, model));
    maps.back().exact = param.is_buffer;
    for (WeightMap& other : maps.back().others) other.exact = param.is_buffer;
  }
  place_in_tensors(maps);
  return maps;
}

std::string name_prefix(const HuggingFaceFamily& family) { return family.names.prefix; }

std::string type_of(const HuggingFaceFamily& family) { return family.type; }

bool is_no_parameter(const std::string& theirs, const ModelConfig& model, const HuggingFaceFamily& family) {
  return family.ignores(theirs, model);
}

bool is_skipped(const std::string& theirs, const ModelConfig& model, const HuggingFaceFamily& family) {
  return family.skips != nullptr && family.skips(theirs, model);
}

std::vector<TiedTensors> tied_tensors(const ModelConfig& model, const HuggingFaceFamily& family) {
  return family.tied(model);
}

std::vector<TiedTensors> copies_in_module(const ModelConfig& model, const HuggingFaceFamily& family,
                                          int64_t module) {
  const std::string embedding = family.names.prefix + "embed_tokens.weight";
  const std::string output = model.untie_embeddings_and_output_weights ? "lm_head.weight" : embedding;
  const std::string before =
      fmt::format("{}{}{}.", family.names.prefix, family.names.block, model.num_layers + module);
  std::vector<TiedTensors> copies;
  for (const ModuleCopy& copy : module_copies())
    copies.push_back({before + copy.name, copy.of_output ? output : embedding});
  return copies;
}

std::optional<ModelConfig> untied(ModelConfig model, const HuggingFaceFamily& family) {
  if (!family.may_untie) return std::nullopt;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

std::string auto_class(const ModelConfig& model, const HuggingFaceFamily& family) {
  return family.auto_class(model);
}

void look_for_parts(ModelConfig& model, const HuggingFaceFamily& family,
                    FunctionRef<bool(const std::string&)> has_tensor) {
  const auto is_there = [&](const char* tensor) {
    return has_tensor(
        fmt::format("{}{}{}.{}", family.names.prefix, family.names.block, model.num_layers, tensor));
  };
  if (std::none_of(family.names.in_module.begin(), family.names.in_module.end(),
                   [&](const TensorNames::Entry& entry) { return is_there(entry.theirs.front().data()); }))
    model.mtp_num_layers = 0;
  if (const char* tensor = family.pair_tensor) model.bert_no_binary_head = !has_tensor(tensor);
}

json to_hugging_face(const ModelConfig& trained, const HuggingFaceFamily& family) {
  const ModelConfig model = without_base_width(trained);
  json config = family.write(model);
  config["vocab_size"] = *model.vocab_size;
  config["initializer_range"] = model.init_method_std;
  config["tie_word_embeddings"] = !model.untie_embeddings_and_output_weights;
  config["use_cache"] = true;
  return config;
}

namespace {

// A message of the rules of a run, which name options, with the fields of the file instead.
std::string with_names_of_fields(std::string text, const ConfigReader& from) {
  constexpr std::pair<std::string_view, std::string_view> kFields[] = {
      {"num-layers", "num_hidden_layers"},
      {"hidden-size", "hidden_size"},
      {"num-attention-heads", "num_attention_heads"},
      {"num-query-groups", "num_key_value_heads"},
      {"kv-channels", "head_dim"},
      {"ffn-hidden-size", "intermediate_size"},
      {"ffn-hidden-size", "ffn_dim"},
      {"ffn-hidden-size", "hidden_dim"},
      {"max-position-embeddings", "max_position_embeddings"},
      {"vocab-size", "vocab_size"},
      {"rotary-base", "rope_theta"},
      {"rotary-percent", "partial_rotary_factor"},
      {"rotary-percent", "rotary_pct"},
      {"norm-epsilon", "rms_norm_eps"},
      {"init-method-std", "init_std"},
      {"init-method-std", "initializer_range"},
      {"hidden-dropout", "dropout"},
      {"hidden-dropout", "hidden_dropout_prob"},
      {"attention-dropout", "attention_dropout"},
      {"attn-logit-softcapping", "attn_logit_softcapping"},
      {"final-logit-softcapping", "final_logit_softcapping"},
      {"softmax-scale", "attention_multiplier"},
      {"softmax-scale", "query_pre_attn_scalar"},
      {"embedding-multiplier", "embedding_multiplier"},
      {"residual-multiplier", "residual_multiplier"},
      {"logits-scaling", "logits_scaling"},
      {"window-rotary-base", "rope_local_base_freq"},
      {"num-experts", "num_experts"},
      {"num-experts", "n_routed_experts"},
      {"moe-router-topk", "num_experts_per_tok"},
      {"moe-ffn-hidden-size", "moe_intermediate_size"},
      {"activation-func-clamp-value", "swiglu_limit"},
      {"moe-shared-expert-intermediate-size", "shared_expert_intermediate_size"},
      {"kv-lora-rank", "kv_lora_rank"},
      {"q-lora-rank", "q_lora_rank"},
      {"qk-head-dim", "qk_nope_head_dim"},
      {"qk-pos-emb-head-dim", "qk_rope_head_dim"},
      {"v-head-dim", "v_head_dim"},
      {"mtp-num-layers", "num_nextn_predict_layers"}};
  for (const auto& [option, field] : kFields) {
    if (!from.knows(field)) continue;
    const std::string before = fmt::format("--{}", option), after = fmt::format("'{}'", from.name_of(field));
    for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
      const size_t end = at + before.size();
      const bool longer = end < text.size() && (text[end] == '-' || (text[end] >= 'a' && text[end] <= 'z'));
      if (!longer) text.replace(at, before.size(), after);
    }
  }
  return text;
}

// Reports a 'quantization_config' that the family's tensors cannot have, and fields of it that may change values.
void check_quantization(ConfigReader& from, const json& quantization, const char* method) {
  if (quantization.is_null()) return;
  const json given = quantization.is_object() ? quantization.value("quant_method", json()) : quantization;
  if (method == nullptr || given != method)
    return from.problem(fmt::format("'quantization_config' has the method {}; {}", printable_json(given),
                                    method == nullptr ? std::string("weights must not be quantized")
                                                      : fmt::format("only \"{}\" is supported", method)));
  for (const auto& item : quantization.items())
    if (item.key() != "quant_method" && item.key() != "modules_to_not_convert" && item.key() != "dequantize")
      from.problem(fmt::format("'quantization_config': '{}' is {}; this field is not known here",
                               printable(item.key()), printable_json(item.value())));
}

json fields_json(const ConfigFields& fields) {
  json all = json::object();
  for (const ConfigField& field : fields)
    all[field.names.back()] = {
        {"names", field.names}, {"default", field.absent}, {"of_class", field.of_class}};
  return all;
}

}  // namespace

json hugging_face_fields() {
  json all{{"common", fields_json(common_fields())},
           {"rope_parameters", fields_json(rope_parameters_fields())}};
  for (const HuggingFaceFamily* family : hugging_face_families())
    all["families"][family->type] = fields_json(family->fields);
  return all;
}

const HuggingFaceFamily& family_of_config(const json& config, const std::string& where) {
  if (!config.is_object()) bad_input("{} is not a JSON object", where);
  const json type = config.value("model_type", json());
  for (const HuggingFaceFamily* family : hugging_face_families())
    if (type == family->type) return *family;
  bad_input("{}: its 'model_type' is {}; {} are supported", where, printable_json(type), names_of_families());
}

ModelConfig from_hugging_face(const json& config, const std::string& where) {
  const HuggingFaceFamily& family = family_of_config(config, where);
  ConfigReader from(config, family.fields);
  ModelConfig model = family.read(from);
  check_quantization(from, config.value("quantization_config", json()), family.quantization);
  from.finish(where);
  model.seq_length = *model.max_position_embeddings;
  try {
    return resolved(std::move(model));
  } catch (const Error& error) {
    bad_input("{}: {}", where, with_names_of_fields(error.what(), from));
  }
}

}  // namespace trifold
