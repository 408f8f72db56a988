// Converts models to and from the format of Hugging Face's transformers library: the config.json, and the tensors that
// hold each parameter. GPT-2 (GPT2LMHeadModel), Llama (LlamaForCausalLM), Mixtral (MixtralForCausalLM), Qwen2-MoE
// (Qwen2MoeForCausalLM), Qwen3-MoE (Qwen3MoeForCausalLM), DeepSeek-V3 (DeepseekV3ForCausalLM) and BERT
// (BertForPreTraining, BertForMaskedLM without pairs, and the finetuned BertForSequenceClassification and
// BertForQuestionAnswering) are supported.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "core/tensor.h"

namespace trifold {

// One parameter, and the tensors that hold it: each has an equal number of its rows, in this order.
struct WeightMap {
  std::string ours;  // "block.0.attention.qkv.weight"
  Shape shape;  // the whole parameter's, treated as a matrix [product of all dims except the last, last dim]
  std::vector<std::string> theirs;  // "transformer.h.0.attn.c_attn.weight"
  bool transposed = false;          // the tensors are [in, out], as in GPT-2's Conv1D
  bool vector = false;              // one dim: its elements are rows with one column
  bool fused = false;               // the tensor is [experts, rows of each, columns]
  bool exact = false;               // never stored in 16 bits, also if the other tensors are

  int64_t columns() const { return vector ? 1 : shape[shape.rank() - 1]; }
  int64_t rows_each() const { return shape.elements() / columns() / static_cast<int64_t>(theirs.size()); }
  std::vector<int64_t> their_shape() const;

  // Maps of this parameter to other names that files may have for it.
  std::vector<WeightMap> others = {};
};

// Every parameter of a resolved model, in the model's order.
std::vector<WeightMap> weight_map(const ModelConfig& model);

// Whether a tensor of transformers holds no parameter, such as computed masks and tables, and a tied output head.
bool is_no_parameter(const std::string& theirs, const ModelConfig& model);

// Two tensors that transformers ties if their values are equal or one of them is missing.
struct TiedTensors {
  std::string copy, original;
};
std::vector<TiedTensors> tied_tensors(const ModelConfig& model);
// The model with an untied output head; none if its family has no such model.
std::optional<ModelConfig> untied(ModelConfig model);

// Whether a tensor belongs to layers that are not converted, such as DeepSeek-V3's layers that predict further tokens.
bool is_skipped(const std::string& theirs, const ModelConfig& model);

// The prefix of tensor names in the file of a complete model ("transformer."); files of models without a head do not
// have it.
std::string name_prefix(const ModelConfig& model);

// The config.json of a model. BadInput that lists everything that its family in transformers does not support.
nlohmann::json to_hugging_face(const ModelConfig& model);

// The resolved model of a config.json; seq_length is the number of positions. BadInput, starting with `where`, that
// lists everything that is missing, has the wrong type or is not supported. Whether the model has a head for pairs is
// not in the file: look_for_pairs finds it from the tensors.
ModelConfig from_hugging_face(const nlohmann::json& config, const std::string& where);
void look_for_pairs(ModelConfig& model, FunctionRef<bool(const std::string&)> has_tensor);

// The tables of all families, in the form in which tools/reference/hugging_face_fields.py writes the fields of
// transformers.
nlohmann::json hugging_face_fields();

// The class in transformers that loads the model: AutoModelFor<...>.
std::string auto_class(const ModelConfig& model);

}  // namespace trifold
