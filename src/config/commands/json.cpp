#include "config/commands/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>

#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "core/error.h"
#include "core/read_json.h"

#include "config/subjects/text.h"
namespace trifold {
namespace {

template <class T>
nlohmann::json field_json(const T* field) {
  return *field;
}
template <class T>
nlohmann::json field_json(const std::optional<T>* field) {
  return *field ? nlohmann::json(**field) : nlohmann::json();
}
nlohmann::json field_json(const ValueField& field) {
  std::vector<std::string> words = field.words();
  if (field.is_list()) return words;
  return words.empty() ? nlohmann::json() : nlohmann::json(words.front());
}

nlohmann::json table_json(const OptionTable& table) {
  nlohmann::json json = nlohmann::json::object();
  for (const Option& option : table.options())
    json[json_key(option)] = std::visit([](const auto& field) { return field_json(field); }, option.field);
  return json;
}

// A JSON value as the words that set_value parses; numbers keep their exact text.
std::vector<std::string> json_words(const nlohmann::json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_boolean() || value.is_number()) return {json_text(value)};
  if (!value.is_array()) bad_input("a JSON {} is not allowed here", value.type_name());
  std::vector<std::string> words;
  for (const nlohmann::json& item : value) {
    if (item.is_structured()) bad_input("a JSON {} is not allowed in a list", item.type_name());
    words.push_back(json_words(item).front());
  }
  return words;
}

// A number must be a JSON number: Trifold does not write "12" in quotes.
void check_type(const Option& option, const nlohmann::json& value) {
  const bool text = std::holds_alternative<std::string*>(option.field) || !option.allowed.empty() ||
                    std::holds_alternative<ValueField>(option.field) ||
                    std::holds_alternative<std::optional<std::string>*>(option.field);
  const bool fits = is_list(option)   ? value.is_array()
                    : is_flag(option) ? value.is_boolean()
                    : text            ? value.is_string()
                                      : value.is_number();
  if (!fits) bad_input("a JSON {} is not allowed here", value.type_name());
}

void set_option(const Option& option, const nlohmann::json& json) {
  const std::string key = json_key(option);
  if (!json.contains(key)) return;
  try {
    const bool none = json[key].is_null() || (json[key].is_array() && json[key].empty());
    if (!none) {  // null leaves it unset, as in a new configuration
      check_type(option, json[key]);
      set_value(option, json_words(json[key]));
    }
  } catch (Error& error) {
    error.add_context("'" + key + "'");
    throw;
  }
}

void check_option(const Option& option, const nlohmann::json& json) {
  const std::string key = json_key(option);
  // A missing option was introduced after the file was written; its default is the behaviour of that time.
  if (!json.contains(key) && !option.required) return;
  if (!json.contains(key)) bad_input("'{}' is missing", key);
  if (const auto problem = range_problem(option)) bad_input("'{}': {}", key, text_of(*problem));
}

void read_option(const Option& option, const nlohmann::json& json) {
  set_option(option, json);
  check_option(option, json);
}

void set_options(const OptionTable& table, const nlohmann::json& json) {
  if (!json.is_object()) bad_input("a JSON object is needed, not a JSON {}", json.type_name());
  for (const auto& item : json.items())
    if (const Option* option = table.find(item.key()); option == nullptr || json_key(*option) != item.key())
      bad_input("'{}' is not known: was it written by a newer version?", item.key());
  for (const Option& option : table.options()) set_option(option, json);
}

void read_table(const OptionTable& table, const nlohmann::json& json) {
  set_options(table, json);
  for (const Option& option : table.options()) check_option(option, json);
}

// Which options are required depends on the values of others, as --data-path does on --mock-data: the table that checks
// them is made when they are set.
template <class Config>
void read_config(Config& config, const nlohmann::json& json) {
  set_options(options_of(config), json);
  const OptionTable table = options_of(config);
  for (const Option& option : table.options()) check_option(option, json);
}

OptionTable tokenizer_table(DataConfig& data) {
  OptionTable table;
  add_tokenizer(table, data);
  add_chat_template(table, data);
  return table;
}

}  // namespace

std::string json_key(const Option& option) {
  std::string key = option.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

nlohmann::json to_json(const ModelConfig& model) {
  ModelConfig copy = model;
  return table_json(options_of(copy));
}

nlohmann::json to_json(const PretrainConfig& config) {
  PretrainConfig copy = config;
  return table_json(options_of(copy));
}

nlohmann::json to_json(const RecommendConfig& config) {
  RecommendConfig copy = config;
  return table_json(options_of(copy));
}

nlohmann::json tokenizer_to_json(const DataConfig& data) {
  DataConfig copy = data;
  return table_json(tokenizer_table(copy));
}

ModelConfig model_from_json(const nlohmann::json& json) {
  ModelConfig model;
  // First, because the ranges of sizes depend on it.
  if (json.is_object() && json.contains("model") && json["model"].is_string())
    model.model = json["model"].get<std::string>();
  const OptionTable table = options_of(model);
  try {
    read_table(table, json);
  } catch (Error& error) {
    error.add_context("model");
    throw;
  }
  return model;
}

PretrainConfig pretrain_from_json(const nlohmann::json& json) {
  PretrainConfig config;
  if (json.is_object() && json.contains("model") && json["model"].is_string())
    config.model.model = json["model"].get<std::string>();
  read_config(config, json);
  if (config.model.model) config.model = without_sizes_of_file(std::move(config.model));
  if (config.batch.train_epochs) config.batch.train_iters = PretrainConfig().batch.train_iters;
  return config;
}

RecommendConfig recommend_from_json(const nlohmann::json& json) {
  RecommendConfig config;
  read_config(config, json);
  return config;
}

void tokenizer_from_json(const nlohmann::json& json, DataConfig& data) {
  copy_tokenizer({}, data);
  const OptionTable table = tokenizer_table(data);
  try {
    read_table(table, json);
  } catch (Error& error) {
    error.add_context("tokenizer");
    throw;
  }
}

namespace {

// Options that define a recommender: its layers, and its training objective.
constexpr const char* kRecommenderOptions[] = {"embedding-dim",
                                               "bottom-mlp",
                                               "top-mlp",
                                               "interaction",
                                               "interaction-self",
                                               "wide",
                                               "dropout",
                                               "optimizer",
                                               "pooling",
                                               "embedding-optimizer",
                                               "cross-layers",
                                               "cross-rank",
                                               "loss",
                                               "f64",
                                               "batch-norm",
                                               "attention",
                                               "attention-mlp",
                                               "tower-mlp",
                                               "multi-task",
                                               "embedding-init-range",
                                               "mmoe-experts",
                                               "key-admission",
                                               "key-eviction",
                                               "no-correct-negatives"};
// Options that affect how a recommender computes and reads its data.
constexpr const char* kUseOptions[] = {"bf16", "table-max-ids", "id-policy"};

void read_options(const OptionTable& table, std::span<const char* const> names, const nlohmann::json& json) {
  try {
    if (!json.is_object()) bad_input("a JSON object is needed, not a JSON {}", json.type_name());
    for (const char* name : names) read_option(*table.find(name), json);
  } catch (Error& error) {
    error.add_context("config");
    throw;
  }
}

}  // namespace

void recommender_from_json(const nlohmann::json& json, RecommendConfig& config) {
  const OptionTable table = options_of(config);
  read_options(table, kRecommenderOptions, json);
  read_options(table, kUseOptions, json);
}

bool is_inherited(std::string_view option) {
  return std::find(std::begin(kRecommenderOptions), std::end(kRecommenderOptions), option) !=
         std::end(kRecommenderOptions);
}

void inherit_model(const nlohmann::json& json, RecommendConfig& config) {
  RecommendConfig plain;
  RecommendConfig stored;
  const OptionTable table = options_of(config), defaults = options_of(plain), from = options_of(stored);
  read_options(from, kRecommenderOptions, json);
  for (const char* name : kRecommenderOptions) {
    const Option& option = *table.find(name);
    const auto words = value_words(*from.find(name));
    if (words && !config.given.contains(name) && value_words(option) == value_words(*defaults.find(name)))
      set_value(option, *words);
  }
}

std::vector<std::string> model_differences(const ModelConfig& checkpoint, const ModelConfig& asked) {
  std::vector<std::string> differences;
  const nlohmann::json left = to_json(checkpoint), right = to_json(asked);
  for (const auto& item : left.items())
    if (item.value() != right[item.key()])
      differences.push_back(fmt::format("{} is {} in the checkpoint, {} asked for", item.key(),
                                        json_text(item.value()), json_text(right[item.key()])));
  return differences;
}

}  // namespace trifold
