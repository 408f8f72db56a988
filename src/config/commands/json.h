// Configurations as JSON: the model and tokenizer that a checkpoint stores, and the record of a whole run. Keys are
// option names with underscores; an unset value is null. Numbers are stored exactly.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "config/fields/recommend_config.h"
#include "config/options/option.h"

namespace trifold {

// The key of an option: its name with underscores.
std::string json_key(const Option& option);

nlohmann::json to_json(const ModelConfig& model);
nlohmann::json to_json(const PretrainConfig& config);
nlohmann::json to_json(const RecommendConfig& config);
// The fields that name the tokenizer (add_tokenizer in config/subjects/text.h).
nlohmann::json tokenizer_to_json(const DataConfig& data);

// The inverse of to_json. Throws Error(BadInput) naming the field that is missing, unknown, of the wrong type
// or out of range.
ModelConfig model_from_json(const nlohmann::json& json);
// The configuration of a run from a value of to_json of the resolved one; unset options may be missing. It can be
// resolved again: values that were derived from files or other options are left out where they exclude these.
PretrainConfig pretrain_from_json(const nlohmann::json& json);
RecommendConfig recommend_from_json(const nlohmann::json& json);
// Sets the fields of tokenizer_to_json in `data` and leaves the others unchanged. Throws as model_from_json does.
void tokenizer_from_json(const nlohmann::json& json, DataConfig& data);

// Sets the fields that affect a recommender's predictions (model, precision, reading of its data) from `json`, a value
// of to_json(RecommendConfig), and leaves the others unchanged. Throws as model_from_json does.
void recommender_from_json(const nlohmann::json& json, RecommendConfig& config);

// Sets the options of the model, and of the optimizers whose state a checkpoint has, from `json`, a value of
// to_json(RecommendConfig). Given options are unchanged: options in config.given, and options without their default
// value. Throws as model_from_json does.
void inherit_model(const nlohmann::json& json, RecommendConfig& config);
// Whether inherit_model sets this option.
bool is_inherited(std::string_view option);

// The fields in which two models differ, one line each: "hidden_size is 128 in the checkpoint, 256 asked for". Both
// must be resolved, so that a derived value equals the same value given.
std::vector<std::string> model_differences(const ModelConfig& checkpoint, const ModelConfig& asked);

}  // namespace trifold
