// HuggingFaceFamily: how transformers represents the models of one family: names of tensors and fields of the
// config.json. Internal to hugging_face.cpp and the families.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "models/hugging_face/config_fields.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {

// Names of tensors, ours and theirs. Tensors in a block have prefixes such as "block.<n>." and "h.<n>."; tensors of a
// head have no prefix. A list with a '*' stands for one list per expert, numbered from 0.
struct TensorNames {
  using Names = std::vector<std::string_view>;
  struct Entry {
    std::string_view ours;
    Names theirs;
    bool transposed = false;
    // Other names in files. For experts, a name without '*' is one tensor for all experts.
    std::vector<Names> also = {};
  };
  std::string prefix, block;
  std::vector<Entry> in_block, outside, head = {};
};

struct HuggingFaceFamily {
  const char* name;  // in messages
  const char* type;  // its 'model_type'
  ConfigFields fields;
  TensorNames names;
  ModelConfig (*read)(ConfigReader& from);
  nlohmann::json (*write)(const ModelConfig& model);  // the fields that differ between families
  // The options that a model of the family implies and `model` does not have: "--swiglu", "no --qk-layernorm".
  std::vector<std::string> (*missing)(const ModelConfig& model);
  // Whether a tensor holds no parameter.
  bool (*ignores)(const std::string& theirs, const ModelConfig& model);
  std::vector<TiedTensors> (*tied)(const ModelConfig& model);
  // The class of transformers that opens the model: AutoModelFor<...>.
  const char* (*auto_class)(const ModelConfig& model);
  // The name of a tensor that only models with a head for pairs have; null: the family has no such head.
  const char* pair_tensor = nullptr;
  // Whether a tensor belongs to layers that are not converted, which a message reports; null: no such layers. `ignores`
  // is true for these tensors too.
  bool (*skips)(const std::string& theirs, const ModelConfig& model) = nullptr;
  // Whether the output head may have its own weight.
  bool may_untie = true;
};

const HuggingFaceFamily& gpt2_family();
const HuggingFaceFamily& llama_family();
const HuggingFaceFamily& mixtral_family();
const HuggingFaceFamily& qwen2_moe_family();
const HuggingFaceFamily& qwen3_moe_family();
const HuggingFaceFamily& deepseek_v3_family();
const HuggingFaceFamily& bert_family();

// Read and write the sizes whose fields have the same names in BERT and the families of Llama: depth, width, heads,
// feed-forward width and positions; read_sizes also reads the vocabulary and the standard deviation of initial weights.
ModelConfig read_sizes(ConfigReader& from);
nlohmann::json sizes_json(const ModelConfig& model);

// Shared by the families of Llama. read_decoder reads all fields except the width of a head, biases and rotary
// positions; llama_json writes the fields of a Llama; tied_head names the tensors of a tied output head.
ModelConfig read_decoder(ConfigReader& from);
void read_head_width(ConfigReader& from, ModelConfig& model);
nlohmann::json llama_json(const ModelConfig& model);
std::vector<TiedTensors> tied_head(const ModelConfig& model);

// Names of the up projections, with gates, or of the down projections of experts.
TensorNames::Entry gated_experts(bool up);

// Rotary positions (hugging_face_rope.cpp): the fields of a family whose default base is `theta`, reading and writing
// them, and the fields of 'rope_parameters'.
ConfigFields rope_fields(double theta);
void read_rope(ConfigReader& from, ModelConfig& model);
void write_rope(nlohmann::json& config, const ModelConfig& model);
const ConfigFields& rope_parameters_fields();

// Reads 'layer_types' of a model in which every layer attends to all earlier positions, including layers with a window
// if `windows_cover_all`.
void read_layer_types(ConfigReader& from, const ModelConfig& model, bool windows_cover_all = false);
// Whether each position attends to all earlier positions although attention is limited to the last 'sliding_window'.
bool window_covers_all(ConfigReader& from, const ModelConfig& model);

// Reads 'num_experts_per_tok', at most `count`, the number of experts, which the field `experts` gives.
int64_t read_choices(ConfigReader& from, const char* experts, int64_t count);

// Reads an activation; in transformers "gelu" is the erf form. `others` are names that the caller accepts, for the
// message: "\"relu2\", ".
void read_gelu(ConfigReader& from, const char* key, ModelConfig& model, const char* others = "");
const char* gelu_name(const ModelConfig& model);
// The texts of the requirements that are not met.
std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs);

}  // namespace trifold
