// Converts models to and from the format of Hugging Face's transformers library: the config.json, and the tensors that
// hold each parameter. The table of families (families.inc) lists the models that are supported, each by its
// 'model_type'.
//
// Several families may compute the same model, such as Llama and Mistral: a file names its family, and a model that is
// written gets the first of the table that fits, or the one that is asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "core/tensor.h"

namespace trifold {

struct HuggingFaceFamily;  // models/hugging_face/hugging_face_family.h

// The rows of one parameter that a tensor of transformers holds. The tensor consists of `matrices` matrices, such as the
// experts', each of `groups` groups of `group_rows` rows, such as the rows of each head; a group has `width` rows of each
// of `components` components of the parameter, such as queries, keys and values, from its row `offset` on. In the
// parameter, matrices are in the same order, and in each, all rows of a component follow each other.
struct TensorRows {
  std::string tensor;  // "transformer.h.0.attn.c_attn.weight"
  int64_t components = 1, groups = 1, width = 0;
  int64_t offset = 0, group_rows = 0;
  int64_t matrices = 1;

  int64_t rows() const { return matrices * components * groups * width; }  // rows of the parameter
  int64_t matrix_rows() const { return groups * group_rows; }              // rows of a matrix in the tensor
  int64_t tensor_rows() const { return matrices * matrix_rows(); }

  // Rows of one matrix that follow each other in the parameter, and in the tensor at a distance of `stride` rows;
  // `first` is the first of them there.
  struct Run {
    int64_t first, count, stride = 1;
  };
  // The longest run from this row of the parameter's part on.
  Run run_at(int64_t row) const;
};

// One parameter, and the tensors that hold its rows, in this order.
struct WeightMap {
  std::string ours;  // "block.0.attention.qkv.weight"
  Shape shape;  // the whole parameter's, treated as a matrix [product of all dims except the last, last dim]
  std::vector<TensorRows> theirs;
  bool transposed = false;  // the tensors are [in, out], as in GPT-2's Conv1D
  bool vector = false;      // one dim: its elements are rows with one column
  bool fused =
      false;  // the tensor is [experts, rows of each, columns], or transposed [experts, columns, rows]
  bool mxfp4 = false;  // the tensors are quantised (models/folders/mxfp4.h); their names end in kMxfp4Blocks
  bool exact = false;  // never stored in 16 bits, also if the other tensors are

  int64_t columns() const { return vector ? 1 : shape[shape.rank() - 1]; }
  int64_t rows() const { return shape.elements() / columns(); }
  std::vector<int64_t> their_shape(const TensorRows& part) const;

  // Maps of this parameter to other names that files may have for it.
  std::vector<WeightMap> others = {};
};

// The ends of the names of a tensor's two parts in MXFP4.
inline constexpr std::string_view kMxfp4Blocks = "_blocks", kMxfp4Scales = "_scales";

// Every parameter of a resolved model, in the model's order.
std::vector<WeightMap> weight_map(const ModelConfig& model, const HuggingFaceFamily& family);

// Places the parameters that share a tensor one after the other in each of its groups, in the order of `maps`.
// weight_map has done so; call it again if some maps are replaced by others.
void place_in_tensors(std::vector<WeightMap>& maps);

// Whether a tensor of transformers holds no parameter, such as computed masks and tables, and a tied output head.
bool is_no_parameter(const std::string& theirs, const ModelConfig& model, const HuggingFaceFamily& family);

// Two tensors that transformers ties if their values are equal or one of them is missing.
struct TiedTensors {
  std::string copy, original;
};
std::vector<TiedTensors> tied_tensors(const ModelConfig& model, const HuggingFaceFamily& family);
// Tensors of a module that predicts further tokens, counted from 0, which equal the model's if they are in a file; files
// that are written have them.
std::vector<TiedTensors> copies_in_module(const ModelConfig& model, const HuggingFaceFamily& family,
                                          int64_t module);
// The model with an untied output head; none if its family has no such model.
std::optional<ModelConfig> untied(ModelConfig model, const HuggingFaceFamily& family);

// Whether a tensor belongs to layers that are not converted, such as DeepSeek-V3's layers that predict further tokens.
bool is_skipped(const std::string& theirs, const ModelConfig& model, const HuggingFaceFamily& family);

// The prefix of tensor names in the file of a complete model ("transformer."); files of models without a head do not
// have it.
std::string name_prefix(const HuggingFaceFamily& family);
// Its 'model_type'.
std::string type_of(const HuggingFaceFamily& family);

// The family of a config.json, by its 'model_type'. BadInput, starting with `where`, if it is not in the table.
const HuggingFaceFamily& family_of_config(const nlohmann::json& config, const std::string& where);

// The family in which a model is written: `wanted`, a 'model_type', or else `former`, the one that the model came from,
// if it fits, or else the first that fits. A family fits if its config.json, read again, gives the same model. BadInput
// that lists what `wanted`, or each of the nearest families, would need, or if there is no family `wanted`.
const HuggingFaceFamily& family_for(const ModelConfig& model, const std::optional<std::string>& wanted = {},
                                    const std::optional<std::string>& former = {});

// The config.json of a model that fits the family.
nlohmann::json to_hugging_face(const ModelConfig& trained, const HuggingFaceFamily& family);

// The resolved model of a config.json; seq_length is the number of positions. BadInput, starting with `where`, that
// lists everything that is missing, has the wrong type or is not supported. Whether the model has a head for pairs
// is not in the file, and its modules that predict further tokens may be absent although it names them: look_for_parts
// finds both from the tensors. Of more modules than a model can have, the first are read.
ModelConfig from_hugging_face(const nlohmann::json& config, const std::string& where);
void look_for_parts(ModelConfig& model, const HuggingFaceFamily& family,
                    FunctionRef<bool(const std::string&)> has_tensor);

// The tables of all families, in the form in which tools/reference/hugging_face_fields.py writes the fields of
// transformers.
nlohmann::json hugging_face_fields();

// The class in transformers that loads the model: AutoModelFor<...>.
std::string auto_class(const ModelConfig& model, const HuggingFaceFamily& family);

}  // namespace trifold
