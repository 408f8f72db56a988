// FirstWeights reads weights from a safetensors file, with which a recommender starts instead of random initial ones.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"
#include "recommend/weights/weight_names.h"

namespace trifold {

class FirstWeights {
 public:
  // Opens a file with Trifold's or TorchRec's names, which may have a prefix `module.` or `model.`. BadInput lists the
  // tensors that the file lacks, that have another shape or a type other than F32 and F64, or that the model does not
  // have.
  FirstWeights(const std::filesystem::path& path, const RecommenderSetup& setup);

  // Fills `boxes`, weights that are f32 or f64 matrices and vectors in host memory, with the values of the file.
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
