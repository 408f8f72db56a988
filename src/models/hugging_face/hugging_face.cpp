#include "models/hugging_face/hugging_face.h"

#include <algorithm>
#include <array>

#include "config/commands/validate.h"
#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"
#include "models/language_family.h"
#include "models/language_model.h"

namespace trifold {

namespace {

using nlohmann::json;

const HuggingFaceFamily& family_of(const ModelConfig& model) {
  return language_family(model).hugging_face(model);
}

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

WeightMap map_of(const std::string& ours, const Shape& shape, const TensorNames& names, int64_t experts) {
  WeightMap map{ours, shape, {}, false, ours.ends_with(".bias") || ours.ends_with(".gain")};
  if (ours == "head.weight") {
    map.theirs = {"lm_head.weight"};
    return map;
  }
  std::string_view rest = ours;
  std::string before = names.prefix;
  const bool in_block = ours.starts_with("block.");
  if (in_block) {
    rest.remove_prefix(std::string_view("block.").size());
    const size_t dot = rest.find('.');
    before += names.block + std::string(rest.substr(0, dot + 1));
    rest.remove_prefix(dot + 1);
  }
  const auto take = [&](const std::vector<TensorNames::Entry>& entries, const std::string& prefix) {
    for (const TensorNames::Entry& entry : entries) {
      if (entry.ours != rest) continue;
      map.theirs = expanded(entry.theirs, experts, prefix);
      map.transposed = entry.transposed;
      for (const TensorNames::Names& also : entry.also) {
        WeightMap other = map;
        other.others.clear();
        other.theirs = expanded(also, experts, prefix);
        other.fused =
            shape.rank() > 2 && other.theirs.size() == 1 && also.front().find('*') == also.front().npos;
        map.others.push_back(std::move(other));
      }
    }
  };
  take(in_block ? names.in_block : names.outside, before);
  if (!in_block) take(names.head, "");
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

std::vector<int64_t> WeightMap::their_shape() const {
  if (fused) return {shape[0], rows_each() / shape[0], columns()};
  if (vector) return {rows_each()};
  if (transposed) return {columns(), rows_each()};
  return {rows_each(), columns()};
}

std::vector<WeightMap> weight_map(const ModelConfig& model) {
  const Model whole = make_model(model, Mesh(MeshSizes{}, MeshCoords{}), 0);
  std::vector<WeightMap> maps;
  for (const ParamSpec& param : whole.params.specs()) {
    if (param.tied_to) continue;
    Shape shape = param.shard.global;
    if (param.rows) shape[0] = *param.rows;
    maps.push_back(map_of(param.shard.name, shape, family_of(model).names, model.num_experts.value_or(0)));
    maps.back().exact = param.is_buffer;
    for (WeightMap& other : maps.back().others) other.exact = param.is_buffer;
  }
  return maps;
}

std::string name_prefix(const ModelConfig& model) { return family_of(model).names.prefix; }

bool is_no_parameter(const std::string& theirs, const ModelConfig& model) {
  return family_of(model).ignores(theirs, model);
}

bool is_skipped(const std::string& theirs, const ModelConfig& model) {
  const auto skips = family_of(model).skips;
  return skips != nullptr && skips(theirs, model);
}

std::vector<TiedTensors> tied_tensors(const ModelConfig& model) { return family_of(model).tied(model); }

std::optional<ModelConfig> untied(ModelConfig model) {
  if (!family_of(model).may_untie) return std::nullopt;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

std::string auto_class(const ModelConfig& model) { return family_of(model).auto_class(model); }

void look_for_pairs(ModelConfig& model, FunctionRef<bool(const std::string&)> has_tensor) {
  if (const char* tensor = family_of(model).pair_tensor) model.bert_no_binary_head = !has_tensor(tensor);
}

namespace {

// Choices of attention that no family's file can have yet.
void refuse_unknown_attention(const ModelConfig& model) {
  const std::pair<bool, const char*> choices[] = {
      {model.window_size && !model.window_size->covers_all(), "window-size"},
      {model.no_rope_freq.has_value(), "no-rope-freq"},
      {model.softmax_type != SoftmaxType::Vanilla, "softmax-type"},
      {model.attn_logit_softcapping.has_value(), "attn-logit-softcapping"}};
  for (const auto& [given, option] : choices)
    if (given) bad_input("models with --{} cannot be converted to Hugging Face's files yet", option);
}

}  // namespace

json to_hugging_face(const ModelConfig& model) {
  refuse_unknown_attention(model);
  const HuggingFaceFamily& family = family_of(model);
  if (const auto missing = family.missing(model); !missing.empty())
    bad_input("transformers has no model like this one:\n  {0} has {1}", family.name,
              fmt::join(missing, fmt::format("\n  {} has ", family.name)));
  json config = family.write(model);
  config["vocab_size"] = *model.vocab_size;
  config["initializer_range"] = model.init_method_std;
  config["tie_word_embeddings"] = !model.untie_embeddings_and_output_weights;
  config["use_cache"] = true;
  return config;
}

namespace {

const std::array<const HuggingFaceFamily*, 7>& families() {
  static const std::array<const HuggingFaceFamily*, 7> kFamilies{
      &gpt2_family(),      &llama_family(),       &mixtral_family(), &qwen2_moe_family(),
      &qwen3_moe_family(), &deepseek_v3_family(), &bert_family()};
  return kFamilies;
}

// A message of the rules of a run, which name options, with the fields of the file instead.
std::string with_names_of_fields(std::string text, const ConfigReader& from) {
  constexpr std::pair<std::string_view, std::string_view> kFields[] = {
      {"num-layers", "num_hidden_layers"},
      {"hidden-size", "hidden_size"},
      {"num-attention-heads", "num_attention_heads"},
      {"num-query-groups", "num_key_value_heads"},
      {"kv-channels", "head_dim"},
      {"ffn-hidden-size", "intermediate_size"},
      {"max-position-embeddings", "max_position_embeddings"},
      {"vocab-size", "vocab_size"},
      {"rotary-base", "rope_theta"},
      {"norm-epsilon", "rms_norm_eps"},
      {"init-method-std", "initializer_range"},
      {"attention-dropout", "attention_dropout"},
      {"num-experts", "num_experts"},
      {"num-experts", "n_routed_experts"},
      {"moe-router-topk", "num_experts_per_tok"},
      {"moe-ffn-hidden-size", "moe_intermediate_size"},
      {"moe-shared-expert-intermediate-size", "shared_expert_intermediate_size"},
      {"kv-lora-rank", "kv_lora_rank"},
      {"q-lora-rank", "q_lora_rank"},
      {"qk-head-dim", "qk_nope_head_dim"},
      {"qk-pos-emb-head-dim", "qk_rope_head_dim"},
      {"v-head-dim", "v_head_dim"}};
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
  for (const HuggingFaceFamily* family : families())
    all["families"][family->type] = fields_json(family->fields);
  return all;
}

ModelConfig from_hugging_face(const json& config, const std::string& where) {
  if (!config.is_object()) bad_input("{} is not a JSON object", where);
  const json type = config.value("model_type", json());
  const auto family = std::find_if(families().begin(), families().end(),
                                   [&](const auto* known) { return type == known->type; });
  if (family == families().end())
    bad_input(
        "{}: its 'model_type' is {}; gpt2, llama, mixtral, qwen2_moe, qwen3_moe, deepseek_v3 and bert are supported",
        where, printable_json(type));
  ConfigReader from(config, (*family)->fields);
  ModelConfig model = (*family)->read(from);
  if (!config.value("quantization_config", json()).is_null())
    from.problem("'quantization_config': weights must not be quantized");
  from.finish(where);
  model.seq_length = *model.max_position_embeddings;
  try {
    return resolved(std::move(model));
  } catch (const Error& error) {
    bad_input("{}: {}", where, with_names_of_fields(error.what(), from));
  }
}

}  // namespace trifold
