// HuggingFaceFamily: how transformers represents the models of one family: names of tensors and fields of the
// config.json. Internal to hugging_face.cpp and the families.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "models/hugging_face/config_fields.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {

// Names of tensors, ours and theirs. Tensors in a block have prefixes such as "block.<n>." and "h.<n>."; tensors of a
// head have no prefix. A list with a '*' stands for one list per expert, numbered from 0. A tensor that several entries
// name holds their rows one after the other, in the order of the model's parameters.
struct TensorNames {
  using Names = std::vector<std::string_view>;
  struct Entry {
    std::string_view ours;
    Names theirs;
    bool transposed = false;
    // Other names in files. For experts, a name without '*' is one tensor for all experts.
    std::vector<Names> also = {};
    // If the rows of the tensors are grouped: the number of groups, each with rows of every component (TensorRows).
    int64_t (*groups)(const ModelConfig& model) = nullptr;
    int64_t components = 1;
    bool stacked = false;  // a tensor holds one matrix for each expert
    // The name of a stacked tensor that a file may have in MXFP4 instead, without its end; such a tensor is not
    // transposed.
    std::string_view mxfp4 = {};
  };
  std::string prefix, block;
  std::vector<Entry> in_block, outside, head = {};
  // Tensors of modules that predict further tokens, besides the tensors of their layers. Modules are blocks after the
  // last one, so these names and in_block's follow `prefix` and `block`. Empty: the family has no modules.
  std::vector<Entry> in_module = {};
};

struct HuggingFaceFamily {
  const char* name;  // in messages
  const char* type;  // its 'model_type'
  ConfigFields fields;
  TensorNames names;
  ModelConfig (*read)(ConfigReader& from);
  nlohmann::json (*write)(const ModelConfig& model);  // the fields that differ between families
  // The options that a model of the family implies and `model` does not have: "--swiglu", "no --qk-layernorm". What no
  // field of the config.json can say may be left to family_for, which reads the file again; what `write` needs may not.
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
  // The --model-type of its models.
  ModelType model = ModelConfig().model_type;
  // The 'quant_method' of a quantization that is read, to values of 16 bits; null: none is.
  const char* quantization = nullptr;
};

#define FAMILY(name) const HuggingFaceFamily& name##_family();
#include "models/hugging_face/families.inc"
#undef FAMILY

// All of them, in the order of the table.
std::span<const HuggingFaceFamily* const> hugging_face_families();
// Their types as words of a sentence: "gpt2, llama and bert".
std::string names_of_families();

// Read and write the sizes whose fields have the same names in BERT and the families of Llama: depth, width, heads,
// feed-forward width and positions; read_sizes also reads the vocabulary and the standard deviation of initial weights.
ModelConfig read_sizes(ConfigReader& from);
nlohmann::json sizes_json(const ModelConfig& model);

// How a family's config.json says rotary positions: the default base, whether rope may rotate a fraction of each head,
// its default, and the names of both outside 'rope_parameters'.
struct RopeStyle {
  double base = 1e4;
  bool partial = false;
  double fraction = 1;
  const char* base_name = "rope_theta";
  const char* fraction_name = "partial_rotary_factor";
  nlohmann::json (*absent)() = nullptr;  // the 'rope_parameters' of a file without them; null: no scaling
};

// Shared by the families of Llama. decoder_fields are the fields that all have with the same defaults, and rope_fields;
// read_decoder reads all fields except the width of a head, biases and rotary
// positions; read_groups reads the number of heads of keys and values; llama_json writes the fields of a Llama; tied_head names the tensors of a tied output head.
ConfigFields decoder_fields(const RopeStyle& rope = {});
ModelConfig read_decoder(ConfigReader& from);
void read_groups(ConfigReader& from, ModelConfig& model);
void read_head_width(ConfigReader& from, ModelConfig& model);
void read_biases(ConfigReader& from, ModelConfig& model);  // 'attention_bias' and 'mlp_bias'
nlohmann::json llama_json(const ModelConfig& model);
// Removes 'head_dim' if it follows from other fields, for classes that do not have it.
void write_head_width_if_odd(nlohmann::json& config, const ModelConfig& model);
// The factor of scores; it stays unset if it follows from the width of keys.
void set_softmax_scale(ModelConfig& model, double scale);
double softmax_scale(const ModelConfig& model);
std::vector<TiedTensors> tied_head(const ModelConfig& model);

// Shared by encoders. read_encoder and encoder_json read and write the fields that BERT and RoBERTa have alike. For
// families that are converted with the head for masked tokens alone, read_masked_words reports every other
// architecture, and masked_words_miss says what a model lacks.
ModelConfig read_encoder(ConfigReader& from);
nlohmann::json encoder_json(const ModelConfig& model);
void read_masked_words(ConfigReader& from, ModelConfig& model, const char* architecture);
std::vector<std::string> masked_words_miss(const ModelConfig& model);

// The names, and the names of the norms of queries and keys.
TensorNames with_head_norms(TensorNames names);

// Names of the up projections, with gates, or of the down projections of experts.
TensorNames::Entry gated_experts(bool up);

// The coefficient of the balance loss over the routers of all layers. Called once the layers with experts are known.
void read_balance_loss(ConfigReader& from, ModelConfig& model);
void write_balance_loss(nlohmann::json& config, const ModelConfig& model);

// Experts chosen by sigmoids with a selection bias (hugging_face_sigmoid_experts.cpp): reading and writing their fields,
// their tensors, and what a model needs besides `missing`.
void read_sigmoid_experts(ConfigReader& from, ModelConfig& model);
void write_sigmoid_experts(nlohmann::json& config, const ModelConfig& model);
std::vector<TensorNames::Entry> sigmoid_expert_names();
std::vector<std::string> sigmoid_experts_miss(const ModelConfig& model, std::vector<std::string> missing);
// Modules that predict further tokens, which are layers after the last one (hugging_face_modules.cpp). transformers does
// not read them, and its config.json may announce layers that are not in the files (look_for_parts).
void read_modules(ConfigReader& from, ModelConfig& model);
void write_modules(nlohmann::json& config, const ModelConfig& model);
std::vector<TensorNames::Entry> module_names();
// Whether a tensor is in a layer behind the last layer and the modules, or is a module's copy of the embedding or of the
// output weight.
// A module's copy of the embedding, or of the output weight, by its name in the module's layer.
struct ModuleCopy {
  const char* name;
  bool of_output;
};
std::span<const ModuleCopy> module_copies();
bool is_in_later_layer(const std::string& theirs, const ModelConfig& model);
bool is_module_copy(const std::string& theirs, const ModelConfig& model);

// Rotary positions (hugging_face_rope.cpp): the fields of a family, reading and writing them, and the fields of
// 'rope_parameters'. read_rope and write_rope read only the names of the style, and whether it is partial.
ConfigFields rope_fields(const RopeStyle& style);
void read_rope(ConfigReader& from, ModelConfig& model, const RopeStyle& style = {});
void write_rope(nlohmann::json& config, const ModelConfig& model, const RopeStyle& style = {});
const ConfigFields& rope_parameters_fields();
// Whether rope is not scaled.
bool turns_plainly(const ModelConfig& model);

// Rotary positions that differ between layers with and without a window: the default bases of both, and the names that
// they have outside 'rope_parameters' (null: none). 'rope_parameters' has an object for each of the two kinds of layers;
// 'rope_scaling' is of layers without a window, or of all (scales_windows).
struct WindowRopeStyle {
  double base = 1e4, window_base = 1e4;
  const char* window_base_name = nullptr;
  const char* base_name = "rope_theta";
  bool scales_windows = false;
};
ConfigFields window_rope_fields(const WindowRopeStyle& style);
void read_window_rope(ConfigReader& from, ModelConfig& model, const WindowRopeStyle& style);
void write_window_rope(nlohmann::json& config, const ModelConfig& model);

// For each layer, whether its number, counted from 1, is not a multiple of the field `name`, or of `each`. A number
// below 1 is a problem.
std::vector<bool> read_all_but_every(ConfigReader& from, const ModelConfig& model, const char* name);
std::vector<bool> all_but_every(int64_t each, const ModelConfig& model);

// Reads the windows of layers, of `window` positions, the token's own included; none: no layer can have one. `windows`
// says which layers have one if the file has no 'layer_types'. Call it after rope is read, because without a window no
// layer has another base of rope.
void read_windows(ConfigReader& from, ModelConfig& model, std::optional<int64_t> window,
                  std::vector<bool> windows);
// The 'sliding_window' of a model, null if no layer has one, and its 'layer_types'.
nlohmann::json window_json(const ModelConfig& model);
nlohmann::json layer_types_json(const ModelConfig& model);

// Reads the window of a model in which all layers have it, if it is `used`, and 'layer_types' if the family has it.
void read_one_window(ConfigReader& from, ModelConfig& model, bool used = true);
// Reads 'layer_types' of a model in which every layer attends to all earlier positions.
void read_layer_types(ConfigReader& from, const ModelConfig& model);

// Reads 'num_experts_per_tok', at most `count`, the number of experts, which the field `experts` gives.
int64_t read_choices(ConfigReader& from, const char* experts, int64_t count);

// Reads an activation; in transformers "gelu" is the erf form. `others` are names that the caller accepts, for the
// message: "\"relu2\", ".
void read_gelu(ConfigReader& from, const char* key, ModelConfig& model, const char* others = "");
const char* gelu_name(const ModelConfig& model);
// `missing` and the texts of the requirements that are not met.
std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs,
                                 std::vector<std::string> missing = {});
// What all families of Llama need; `experts`: whether their layers have experts; `geglu`: their gates are GELUs.
std::vector<std::string> decoder_misses(const ModelConfig& model, bool experts = false, bool geglu = false);

}  // namespace trifold
