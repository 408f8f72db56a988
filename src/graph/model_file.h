// ModelFile: a model that a user brings as a file, lowered to blocks: what a run, a plan and a conversion read of it.
//
// Why a model cannot be trained is known in full when its file is read: training_problems.
//
// A file is read once in a process (open_model_file); its weights are read from the file when they are needed.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/lower/lowered.h"
#include "graph/preparation.h"
#include "graph/pt2/archive.h"
#include "nn/param.h"

namespace trifold::graph {

// A line for each reason why the model cannot be trained, in one list for inputs, nodes and the loss; empty: it can be.
// `graph` was read from `archive`.
std::vector<std::string> training_problems(const Archive& archive, const Graph& graph);

class ModelFile final : public GivenValues {
 public:
  // BadInput if the file cannot be read, or with all training_problems, if there are some, and for patterns that freeze() rejects.
  explicit ModelFile(const std::string& path, std::span<const std::string> frozen = {});

  const std::string& path() const { return archive_.path(); }
  const LoweredGraph& lowered() const { return lowered_; }
  // What freeze() returned for the patterns.
  const std::vector<std::string>& frozen() const { return frozen_; }
  // Eight hexadecimal digits, a checksum of all that the file holds.
  std::string digest() const { return archive_.digest(); }
  // Computes the arrays that blocks read; sums of the run are `floats`, F32 or F64.
  Preparation preparation(DType floats) const;
  // Names that a tied parameter has besides that of its first use, which parameters of the model have.
  std::vector<std::string> other_names(const std::string& name) const;
  // The name of a parameter's first use, under which the model has it; any other name is returned as it is.
  std::string first_name(const std::string& name) const;
  // The tensors of the module's state dictionary, ordered by name. Tied parameters have an entry for each name.
  std::vector<const StoredTensor*> state() const;
  // The elements of one of them, in row-major order; `to` has its size.
  void read(const StoredTensor& tensor, std::span<std::byte> to) const { archive_.read(tensor, to); }
  // The values of a parameter in the file. Failure if it has none of that name.
  void read(const std::string& name, const Rect& box, Tensor values) const override;

 private:
  Array stored(const Input& input) const;

  Archive archive_;
  std::vector<StoredTensor> tensors_;  // by name
  std::vector<std::string> frozen_;
  LoweredGraph lowered_;
};

// Opens a file, or returns the object that an earlier call with the same patterns returned, unless the file has changed
// since.
std::shared_ptr<const ModelFile> open_model_file(const std::string& path,
                                                 std::span<const std::string> frozen = {});
// The file of a checkpoint's model. BadInput, which says what to do, if it does not exist or has another digest; without
// `digest` as above.
std::shared_ptr<const ModelFile> open_model_file(const std::string& path,
                                                 const std::optional<std::string>& digest,
                                                 std::span<const std::string> frozen = {});

}  // namespace trifold::graph
