// Weights of a safetensors file with which a recommender begins, in place of its initial ones.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"
#include "recommend/weight_names.h"

namespace trifold {

class FirstWeights {
 public:
  // Opens a file with names of ours or of TorchRec, which may have a prefix `module.` or `model.`. BadInput that lists
  // what the model needs and the file lacks, or has in another shape or a type other than F32 and F64, and what it has
  // besides.
  FirstWeights(const std::filesystem::path& path, const RecommenderSetup& setup);

  // Fills the boxes of weights, f32 or f64 matrices and vectors in the memory of the host.
  void load(const std::vector<NamedTensor>& boxes) const;

 private:
  struct Found {
    FileWeight weight;
    const SafeTensor* tensor;
  };
  void load(const NamedTensor& box, const Found& found) const;

  SafetensorsFile file_;
  std::vector<Found> found_;
};

}  // namespace trifold
