// The modules of a model that have low-rank adapters (tensor_parallel/low_rank.h), and their tensors in checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

struct AdaptedModule {
  std::string name;              // "block.0.attention.query"
  std::string weight;            // the parameter whose outputs it adapts: "block.0.attention.qkv.weight"
  int64_t groups = 1;            // groups of outputs of the weight
  std::optional<int64_t> group;  // whose outputs they are; none: all

  // Names in checkpoints.
  std::string a() const { return "param/" + name + ".lora_a"; }
  std::string b() const { return "param/" + name + ".lora_b"; }
  std::string magnitude() const { return "param/" + name + ".magnitude"; }
  std::string stored_weight() const { return "param/" + weight; }
};

// In the model's order; none without adapters.
std::vector<AdaptedModule> adapted_modules(const ModelConfig& model);

// A tensor as a matrix [rows, columns] of f64; a vector has one row.
struct ReadMatrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  const double* row(int64_t index) const { return values.data() + index * columns; }
};
// Rows [begin, end) of a tensor, taken as a matrix [all dims but the last, last dim], or all of it.
ReadMatrix read_rows(CheckpointReader& from, const std::string& tensor, int64_t begin, int64_t end);
ReadMatrix read_matrix(CheckpointReader& from, const std::string& tensor);

// The norm of a row.
double row_norm(const double* row, int64_t columns);

// The first magnitudes of a module, the norms of the rows of its weight in `from`: rows [begin, end) of the module's.
std::vector<double> first_magnitudes(CheckpointReader& from, const AdaptedModule& module, int64_t begin,
                                     int64_t end);

}  // namespace trifold
