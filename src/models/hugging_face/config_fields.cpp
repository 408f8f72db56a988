#include "models/hugging_face/config_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

using nlohmann::json;

ConfigField ConfigField::beyond_class() const {
  ConfigField changed = *this;
  changed.of_class = false;
  return changed;
}

ConfigField ConfigField::or_null() const {
  ConfigField changed = *this;
  changed.nullable = true;
  return changed;
}

ConfigField field(std::vector<const char*> names, json absent) {
  return {std::move(names), std::move(absent)};
}

ConfigField fixed(const char* name, json absent, std::vector<json> others) {
  return {{name}, std::move(absent), ConfigField::Use::Fixed, std::move(others)};
}

ConfigField unused(std::vector<const char*> names, json absent) {
  return {std::move(names), std::move(absent), ConfigField::Use::Unused};
}

ConfigFields joined(std::initializer_list<ConfigFields> lists) {
  ConfigFields all;
  for (const ConfigFields& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

namespace {

bool has_name(const ConfigField& field, std::string_view name) {
  return std::find(field.names.begin(), field.names.end(), name) != field.names.end();
}

bool is_in(const ConfigFields& fields, std::string_view name) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const ConfigField& field) { return has_name(field, name); });
}

// The name of a field that a file has; null: it has none.
const char* given_name(const json& config, const ConfigField& field) {
  for (const char* name : field.names)
    if (config.contains(name)) return name;
  return nullptr;
}

}  // namespace

ConfigReader::ConfigReader(const json& config, const ConfigFields& fields, bool common)
    : config_(config), fields_(fields), asked_(fields.size()) {
  for (const ConfigField& field : fields) check_fixed(field);
  if (common)
    for (const ConfigField& field : common_fields())
      if (!is_in(fields, field.names.front())) check_fixed(field);
  for (const auto& item : config.items())
    if (!item.value().is_null() && !is_in(fields, item.key()) &&
        !(common && is_in(common_fields(), item.key())))
      problem(fmt::format(
          "'{}' is {}; this field is not known here: remove it if the model does not depend on it",
          printable(item.key()), printable_json(item.value())));
}

void ConfigReader::check_fixed(const ConfigField& field) {
  const char* name = given_name(config_, field);
  if (name == nullptr || field.use == ConfigField::Use::Unused) return;
  const json& value = config_[name];
  if (value.is_null()) {
    if (field.of_class && !field.nullable && !field.absent.is_null())
      problem(
          fmt::format("'{}' is null; give a value, or remove it for {}", name, printable_json(field.absent)));
    return;
  }
  if (field.use != ConfigField::Use::Fixed || value == field.absent) return;
  if (std::find(field.others.begin(), field.others.end(), value) != field.others.end()) return;
  problem(fmt::format("'{}' is {}; only {} is supported", name, printable_json(value),
                      field.absent.is_null() ? "its absence" : printable_json(field.absent)));
}

const ConfigField& ConfigReader::find(std::string_view name) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!has_name(fields_[i], name)) continue;
    asked_[i] = true;
    return fields_[i];
  }
  fail("'{}' is in no table of fields", name);
}

const json& ConfigReader::value(std::string_view name) const {
  const ConfigField& field = find(name);
  const char* given = given_name(config_, field);
  if (given == nullptr) return field.absent;
  const json& value = config_[given];
  return value.is_null() && !field.nullable ? field.absent : value;
}

bool ConfigReader::given(std::string_view name) const { return given_name(config_, find(name)) != nullptr; }

bool ConfigReader::knows(std::string_view name) const { return is_in(fields_, name); }

bool ConfigReader::has(std::string_view name) const {
  const char* given = given_name(config_, find(name));
  return given != nullptr && !config_[given].is_null();
}

std::string_view ConfigReader::name_of(std::string_view name) const {
  const ConfigField& field = find(name);
  const char* given = given_name(config_, field);
  return given == nullptr ? field.names.back() : given;
}

int64_t ConfigReader::size(std::string_view name) {
  const json& found = value(name);
  constexpr int64_t kMost = int64_t{1}
                            << 40;  // larger sizes are not realistic and could overflow in products
  if (found.is_number_integer() && found.get<int64_t>() >= 0 && found.get<int64_t>() <= kMost)
    return found.get<int64_t>();
  problem(fmt::format("'{}' is {}; a whole number from 0 to {} is needed", name_of(name),
                      printable_json(found), kMost));
  return 0;
}

double ConfigReader::number(std::string_view name) {
  const json& found = value(name);
  if (found.is_number()) return found.get<double>();
  problem(fmt::format("'{}' is {}; a number is needed", name_of(name), printable_json(found)));
  return 0;
}

bool ConfigReader::flag(std::string_view name) {
  const json& found = value(name);
  if (found.is_boolean()) return found.get<bool>();
  if (!found.is_null())
    problem(fmt::format("'{}' is {}; true or false is needed", name_of(name), printable_json(found)));
  return false;
}

std::optional<int64_t> ConfigReader::size_or_null(std::string_view name) {
  return value(name).is_null() ? std::nullopt : std::optional(size(name));
}

std::optional<double> ConfigReader::number_or_null(std::string_view name) {
  return value(name).is_null() ? std::nullopt : std::optional(number(name));
}

void ConfigReader::add_problems_of(const ConfigReader& inner, std::string_view name) {
  for (const std::string& text : inner.problems_) problem(fmt::format("'{}': {}", name, text));
}

void ConfigReader::finish(const std::string& where) const {
  if (!problems_.empty())
    bad_input("{} holds a model that cannot be converted:\n  {}", where, fmt::join(problems_, "\n  "));
}

std::vector<std::string_view> ConfigReader::unread() const {
  std::vector<std::string_view> found;
  for (size_t i = 0; i < fields_.size(); ++i)
    if (fields_[i].use == ConfigField::Use::Read && !asked_[i]) found.emplace_back(fields_[i].names.front());
  return found;
}

const ConfigFields& common_fields() {
  static const ConfigFields kFields = [] {
    ConfigFields fields{
        // The base class of all configurations.
        unused({"transformers_version"}),
        unused({"architectures"}),
        unused({"output_hidden_states"}, false),
        unused({"return_dict"}, true),
        unused({"dtype"}),
        unused({"chunk_size_feed_forward"}, 0),
        fixed("is_encoder_decoder", false),
        unused({"id2label"}),
        unused({"label2id"}),
        unused({"problem_type"}),
        // Fields that it accepts in addition to its own.
        fixed("per_layer_config", nullptr).beyond_class(),
        fixed("add_cross_attention", false).beyond_class(),
        fixed("pruned_heads", json::object()).beyond_class(),
        unused({"quantization_config"}).beyond_class(),  // checked separately
        fixed("rope_interleaved", false).beyond_class(),
    };
    for (const char* name :
         {"model_type", "trifold", "torch_dtype", "name_or_path", "_name_or_path", "_commit_hash",
          "num_labels", "_num_labels", "output_attentions", "attn_implementation", "_attn_implementation",
          "_attn_implementation_autoset", "_attn_implementation_internal", "experts_implementation",
          "_experts_implementation_internal", "_flash_attn_2_enabled", "auto_map", "tokenizer_class",
          "finetuning_task", "task_specific_params", "gradient_checkpointing", "torchscript", "use_bfloat16",
          "tf_legacy_loss", "is_decoder", "cross_attention_hidden_size", "tie_encoder_decoder",
          "tie_last_hidden_states", "prefix", "transformers.js_config", "is_llama_config", "unsloth_fixed",
          "unsloth_version",
          // Ids of tokens.
          "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
          "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
          "bad_words_ids",
          // How texts are generated.
          "use_cache", "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping",
          "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
          "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
          "num_return_sequences", "output_scores", "return_dict_in_generate", "remove_invalid_values",
          "exponential_decay_length_penalty"})
      fields.push_back(unused({name}).beyond_class());
    return fields;
  }();
  return kFields;
}

}  // namespace trifold
