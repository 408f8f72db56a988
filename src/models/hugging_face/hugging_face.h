// Translates models to and from Hugging Face's transformers library: its config.json, and the tensors that hold each of
// our parameters. GPT-2 (GPT2LMHeadModel), Llama (LlamaForCausalLM), Mixtral (MixtralForCausalLM), Qwen2-MoE
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
  Shape shape;       // of the whole parameter; treated as a matrix [all dims but the last, the last]
  std::vector<std::string> theirs;  // "transformer.h.0.attn.c_attn.weight"
  bool transposed = false;          // the tensors are [in, out], as in GPT-2's Conv1D
  bool vector = false;              // one dim: its elements are rows with one column
  bool fused = false;               // the tensor is [experts, rows of each, columns]
  bool exact = false;               // never stored in 16 bits, whatever the others are

  int64_t columns() const { return vector ? 1 : shape[shape.rank() - 1]; }
  int64_t rows_each() const { return shape.elements() / columns() / static_cast<int64_t>(theirs.size()); }
  std::vector<int64_t> their_shape() const;

  // The same parameter under other names that files have for it.
  std::vector<WeightMap> others = {};
};

// Every parameter of a resolved model, in the model's order.
std::vector<WeightMap> weight_map(const ModelConfig& model);

// True for a tensor of theirs that holds no parameter: computed masks and tables, and a tied output head.
bool is_no_parameter(const std::string& theirs, const ModelConfig& model);

// Two tensors that transformers makes one, if their values are the same or one of them is missing.
struct TiedTensors {
  std::string copy, original;
};
std::vector<TiedTensors> tied_tensors(const ModelConfig& model);
// The model whose output head is not tied; nothing: there is none in its family.
std::optional<ModelConfig> untied(ModelConfig model);

// True for a tensor of layers that are left out: of DeepSeek-V3's, which predict further tokens.
bool is_skipped(const std::string& theirs, const ModelConfig& model);

// The prefix of tensor names in the file of a complete model ("transformer."), absent in that of a model without a
// head.
std::string name_prefix(const ModelConfig& model);

// The config.json of a model. BadInput that lists everything their model family does not support.
nlohmann::json to_hugging_face(const ModelConfig& model);

// The inverse, resolved: seq_length is the number of positions. BadInput, starting with `where`, that lists everything
// missing, of the wrong type or not supported. Whether there is a head for pairs follows from the tensors, not from
// this file.
ModelConfig from_hugging_face(const nlohmann::json& config, const std::string& where);
void look_for_pairs(ModelConfig& model, FunctionRef<bool(const std::string&)> has_tensor);

// The tables of all families, as tools/reference/hugging_face_fields.py writes those of transformers.
nlohmann::json hugging_face_fields();

// The class in transformers that loads the model: AutoModelFor<...>.
std::string auto_class(const ModelConfig& model);

}  // namespace trifold
