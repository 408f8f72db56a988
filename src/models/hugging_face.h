// Models as Hugging Face's transformers library knows them: its config.json, and which of its tensors hold a
// parameter of ours. GPT-2 (GPT2LMHeadModel), Llama (LlamaForCausalLM), Mixtral (MixtralForCausalLM), Qwen3-MoE
// (Qwen3MoeForCausalLM) and BERT (BertForPreTraining,
// BertForMaskedLM without pairs, and tuned BertForSequenceClassification and BertForQuestionAnswering) are
// known.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "core/tensor.h"

namespace trifold {

// One parameter, and the tensors that hold it: these follow each other in its rows, with as many each.
struct WeightMap {
  std::string ours;                 // "block.0.attention.qkv.weight"
  Shape shape;                      // whole; taken for a matrix [all dims but the last, the last]
  std::vector<std::string> theirs;  // "transformer.h.0.attn.c_attn.weight"
  bool transposed = false;          // they hold [in, out], as GPT-2's Conv1D does
  bool vector = false;              // one dim: its elements are rows of one column

  int64_t columns() const { return vector ? 1 : shape[shape.rank() - 1]; }
  int64_t rows_each() const { return shape.elements() / columns() / static_cast<int64_t>(theirs.size()); }
  std::vector<int64_t> their_shape() const;
};

// Every parameter of a resolved model, in the order in which the model uses them.
std::vector<WeightMap> weight_map(const ModelConfig& model);

// True for a tensor of theirs that holds no parameter: masks and tables that are computed, and the output
// head where it is tied.
bool is_no_parameter(const std::string& theirs, const ModelConfig& model);

// What their names begin with in the file of a whole model ("transformer."), and in that of one without a
// head not.
std::string name_prefix(const ModelConfig& model);

// The config.json of a model. BadInput that lists everything its family does not have.
nlohmann::json to_hugging_face(const ModelConfig& model);

// The inverse, resolved: seq_length is the number of positions. BadInput, starting with `where`, that lists
// everything which is missing, of the wrong type or not supported. Whether there is a head for pairs the
// tensors say.
ModelConfig from_hugging_face(const nlohmann::json& config, const std::string& where);
void look_for_pairs(ModelConfig& model, FunctionRef<bool(const std::string&)> has_tensor);

// The class of transformers that opens the model: AutoModelFor<...>.
std::string auto_class(const ModelConfig& model);

}  // namespace trifold
