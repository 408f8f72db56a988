// The names of a recommender's weights in files of tensors (checkpoint/safetensors.h): those that they have here, or
// those of TorchRec's state dictionaries (torchrec.models.dlrm: DLRM, DLRM_DCN).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_kind.h"
#include "recommend/recommender.h"

namespace trifold {

struct FileWeight {
  std::string name;    // in the file
  std::string weight;  // here: "embedding.C1.weight"
  Shape shape;
  bool is_table = false;
  std::string_view kind = kWeightKind;
  // Which column of ours is column i of the file's matrix; empty: the same.
  std::vector<int64_t> columns = {};
};

// Every weight of a model, tables first, by the names that they have here.
std::vector<FileWeight> own_weights(const RecommenderSetup& setup);

// The same by TorchRec's names. It takes the products of pairs of vectors in another order: (0, 1), (0, 2), ... BadInput,
// beginning with `what`, for a model that it does not have.
std::vector<FileWeight> torchrec_weights(const RecommenderSetup& setup, const std::string& what);

}  // namespace trifold
