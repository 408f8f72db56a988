// The names that transformers uses for the models of one family, their tensors and the fields of their config.json.
// Only hugging_face.cpp and the families use this.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

// The fields of a config.json. Problems are collected, so that all are reported at once.
class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  bool has(const char* key) const { return config_.contains(key) && !config_[key].is_null(); }
  const nlohmann::json& at(const char* key) const { return config_[key]; }

  // If the field is missing: `absent`, or a problem.
  int64_t size(const char* key, std::optional<int64_t> absent = {});
  double number(const char* key, double absent);
  bool flag(const char* key, bool absent);
  // For fields of which only some values are supported.
  void must_be(const char* key, const std::vector<nlohmann::json>& supported, const nlohmann::json& absent);
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  // BadInput with all problems, if there are any.
  void finish(const std::string& where) const;

 private:
  const nlohmann::json& config_;
  std::vector<std::string> problems_;
};

// The names of tensors, ours and theirs. Those in a block are prefixed by "block.<n>." and "h.<n>."; those of a head
// have no prefix. A list with a '*' stands for one such list per expert, numbered from 0.
struct TensorNames {
  struct Entry {
    std::string_view ours;
    std::vector<std::string_view> theirs;
    bool transposed = false;
  };
  std::string prefix, block;
  std::vector<Entry> in_block, outside, head = {};
};

struct HuggingFaceFamily {
  const char* name;  // for people
  const char* type;  // its 'model_type'
  TensorNames names;
  ModelConfig (*read)(ConfigReader& from);
  nlohmann::json (*write)(const ModelConfig& model);  // the fields that differ between families
  // The options that such a model implies and `model` lacks: "--swiglu", "no --qk-layernorm".
  std::vector<std::string> (*missing)(const ModelConfig& model);
  // Whether a tensor holds no parameter.
  bool (*ignores)(const std::string& theirs, const ModelConfig& model);
  // The class of transformers that opens the model: AutoModelFor<...>.
  const char* (*auto_class)(const ModelConfig& model);
  // A tensor that is present only with a head for pairs; null: the family has none.
  const char* pair_tensor = nullptr;
  // Whether a tensor belongs to layers that are not converted, which a message reports; null: there are none. `ignores`
  // is true for them too.
  bool (*skips)(const std::string& theirs, const ModelConfig& model) = nullptr;
};

const HuggingFaceFamily& gpt2_family();
const HuggingFaceFamily& llama_family();
const HuggingFaceFamily& mixtral_family();
const HuggingFaceFamily& qwen2_moe_family();
const HuggingFaceFamily& qwen3_moe_family();
const HuggingFaceFamily& deepseek_v3_family();
const HuggingFaceFamily& bert_family();

// The fields of Llama, which other families share.
ModelConfig read_llama(ConfigReader& from);
nlohmann::json llama_json(const ModelConfig& model);

// Reads 'num_experts_per_tok', at most `count`, the number of experts, which the field `experts` gives.
int64_t read_choices(ConfigReader& from, const char* experts, int64_t count);

// In transformers "gelu" is the erf form.
void read_gelu(ConfigReader& from, const char* key, const char* absent, ModelConfig& model);
const char* gelu_name(const ModelConfig& model);
// The texts of a list of requirements that do not hold.
std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs);

}  // namespace trifold
