// The names that transformers uses for the models of one family, their tensors and the fields of their config.json.
// Only hugging_face.cpp and the families use this.
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

// The names of tensors, ours and theirs. Those in a block are prefixed by "block.<n>." and "h.<n>."; those of a head
// have no prefix. A list with a '*' stands for one such list per expert, numbered from 0.
struct TensorNames {
  using Names = std::vector<std::string_view>;
  struct Entry {
    std::string_view ours;
    Names theirs;
    bool transposed = false;
    // Other names in a file. Of experts, a name without '*' is one tensor for all of them.
    std::vector<Names> also = {};
  };
  std::string prefix, block;
  std::vector<Entry> in_block, outside, head = {};
};

struct HuggingFaceFamily {
  const char* name;  // for people
  const char* type;  // its 'model_type'
  ConfigFields fields;
  TensorNames names;
  ModelConfig (*read)(ConfigReader& from);
  nlohmann::json (*write)(const ModelConfig& model);  // the fields that differ between families
  // The options that such a model implies and `model` lacks: "--swiglu", "no --qk-layernorm".
  std::vector<std::string> (*missing)(const ModelConfig& model);
  // Whether a tensor holds no parameter.
  bool (*ignores)(const std::string& theirs, const ModelConfig& model);
  std::vector<TiedTensors> (*tied)(const ModelConfig& model);
  // The class of transformers that opens the model: AutoModelFor<...>.
  const char* (*auto_class)(const ModelConfig& model);
  // A tensor that is present only with a head for pairs; null: the family has none.
  const char* pair_tensor = nullptr;
  // Whether a tensor belongs to layers that are not converted, which a message reports; null: there are none. `ignores`
  // is true for them too.
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

// Reads and writes the sizes whose fields BERT and the families of Llama call by the same names: depth, width, heads,
// feed-forward width, positions; read_sizes also the vocabulary and the deviation of initial weights.
ModelConfig read_sizes(ConfigReader& from);
nlohmann::json sizes_json(const ModelConfig& model);

// What the families of Llama share: the sizes, without the width of a head, biases and rotary positions; the former;
// the fields of a Llama; and the output head.
ModelConfig read_decoder(ConfigReader& from);
void read_head_width(ConfigReader& from, ModelConfig& model);
nlohmann::json llama_json(const ModelConfig& model);
std::vector<TiedTensors> tied_head(const ModelConfig& model);

// The names of experts with gates: their up projections, or their down projections.
TensorNames::Entry gated_experts(bool up);

// Rotary positions (hugging_face_rope.cpp): the fields of a family whose base is `theta` if a file has none, their
// values, and the fields of 'rope_parameters'.
ConfigFields rope_fields(double theta);
void read_rope(ConfigReader& from, ModelConfig& model);
void write_rope(nlohmann::json& config, const ModelConfig& model);
const ConfigFields& rope_parameters_fields();

// Reads 'layer_types' of a model whose layers all see every earlier position, those with a window too if
// `windows_cover_all`.
void read_layer_types(ConfigReader& from, const ModelConfig& model, bool windows_cover_all = false);
// Whether each position sees all that come before it although only the last 'sliding_window' are visible.
bool window_covers_all(ConfigReader& from, const ModelConfig& model);

// Reads 'num_experts_per_tok', at most `count`, the number of experts, which the field `experts` gives.
int64_t read_choices(ConfigReader& from, const char* experts, int64_t count);

// In transformers "gelu" is the erf form. `others` are names that the caller reads, for the message: "\"relu2\", ".
void read_gelu(ConfigReader& from, const char* key, ModelConfig& model, const char* others = "");
const char* gelu_name(const ModelConfig& model);
// The texts of a list of requirements that do not hold.
std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs);

}  // namespace trifold
