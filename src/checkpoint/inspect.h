// Reports about checkpoints, as text; `trifold inspect` prints them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace trifold {

// Step, model, writing mesh, files, a table of the tensors (dtype, shape, bytes, pieces) and totals by kind. Fields of
// the model whose value is the same in the object `default_model` are left out.
std::string describe(const CheckpointReader& checkpoint,
                     const nlohmann::json& default_model = nlohmann::json::object());

// "model: hidden_size 128, ..." on as many lines as it needs: the fields of `model` that differ from `default_model`.
std::string model_text(const nlohmann::json& model, const nlohmann::json& default_model);

// The report of CheckpointReader::verify, ending in a verdict.
std::string to_text(const VerifyReport& report);

// The differences in one tensor, of values converted to f64; two NaNs are equal, and a NaN differs infinitely from any
// other value.
struct TensorDifference {
  std::string name;
  int64_t elements_differing = 0;  // by their bits, or by value if the dtypes differ
  double max_abs = 0;              // largest |a - b|
  double max_rel = 0;              // largest |a - b| / max(|a|, |b|)
  std::string shape_or_dtype;      // "f32 [4, 4] and f32 [4, 8]" if these differ
};

struct CheckpointDifference {
  // Differing fields of step, samples, model, config and state: "config.lr: left 0.1, right 0.2".
  std::vector<std::string> fields;
  std::vector<std::string> only_left;     // tensors
  std::vector<std::string> only_right;    // tensors
  std::vector<TensorDifference> tensors;  // tensors that differ
  int64_t tensors_equal = 0;              // tensors equal to the last bit
  bool bitwise_equal() const { return only_left.empty() && only_right.empty() && tensors.empty(); }
};

// Compares two checkpoints written on any meshes. Needs memory for two blocks of rows at a time, not for whole tensors.
CheckpointDifference difference(CheckpointReader& left, CheckpointReader& right);

std::string to_text(const CheckpointDifference& difference);

}  // namespace trifold
