// Reports about checkpoints, as text; `trifold inspect` prints them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace trifold {

// Step, model, writing mesh, files, a table of the tensors (dtype, shape, bytes, pieces) and totals by kind.
// Fields of the model that have their value in `default_model`, an object, are left out.
std::string describe(const CheckpointReader& checkpoint,
                     const nlohmann::json& default_model = nlohmann::json::object());

// The report of CheckpointReader::verify, ending in a verdict.
std::string to_text(const VerifyReport& report);

// How one tensor differs. Differences are of values as f64; two NaNs are equal, a NaN and a number differ
// infinitely.
struct TensorDifference {
  std::string name;
  int64_t elements_differing = 0;  // by their bits, or by value where the dtypes differ
  double max_abs = 0;              // largest |a - b|
  double max_rel = 0;              // largest |a - b| / max(|a|, |b|)
  std::string shape_or_dtype;      // "f32 [4, 4] and f32 [4, 8]" where these differ
};

struct CheckpointDifference {
  std::vector<std::string>
      fields;  // of step, samples, model, config and state: "config.lr: left 0.1, right 0.2"
  std::vector<std::string> only_left;     // tensors
  std::vector<std::string> only_right;    // tensors
  std::vector<TensorDifference> tensors;  // those that differ
  int64_t tensors_equal = 0;              // to the last bit
  bool bitwise_equal() const { return only_left.empty() && only_right.empty() && tensors.empty(); }
};

// Compares two checkpoints, whatever meshes wrote them. Needs memory for two blocks of rows at a time, not
// for whole tensors.
CheckpointDifference difference(CheckpointReader& left, CheckpointReader& right);

std::string to_text(const CheckpointDifference& difference);

}  // namespace trifold
