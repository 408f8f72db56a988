// ModelFile: a model that a user brings as a file, lowered to blocks: what a run, a plan and a conversion read of it.
//
// A file is read once in a process (open_model_file); its weights are read from the file when they are needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/lower/lowered.h"
#include "graph/preparation.h"
#include "graph/pt2/archive.h"
#include "nn/param.h"

namespace trifold::graph {

class ModelFile final : public GivenValues {
 public:
  // BadInput if the file cannot be read, or if its model cannot be trained (graph/lower/lowered.h).
  explicit ModelFile(const std::string& path);

  const std::string& path() const { return archive_.path(); }
  const LoweredGraph& lowered() const { return lowered_; }
  // Computes the arrays that blocks read; sums of the run are `floats`, F32 or F64.
  Preparation preparation(DType floats) const;
  // Names that a tied parameter has besides that of its first use, which parameters of the model have.
  std::vector<std::string> other_names(const std::string& name) const;
  // The values of a parameter in the file. Failure if it has none of that name.
  void read(const std::string& name, const Rect& box, Tensor values) const override;

 private:
  Array stored(const Input& input) const;

  Archive archive_;
  std::vector<StoredTensor> tensors_;  // by name
  LoweredGraph lowered_;
};

// Opens a file, or returns the object that an earlier call returned, unless the file has changed since.
std::shared_ptr<const ModelFile> open_model_file(const std::string& path);

}  // namespace trifold::graph
