// The names of a recommender's weights in files of tensors (checkpoint/safetensors.h): Trifold's own names, or the
// names of TorchRec's state dictionaries (torchrec.models.dlrm: DLRM, DLRM_DCN).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_kind.h"
#include "recommend/recommender.h"

namespace trifold {

struct FileWeight {
  std::string name;    // name in the file
  std::string weight;  // Trifold's name: "embedding.C1.weight"
  Shape shape;
  bool is_table = false;
  std::string_view kind = kWeightKind;
  // columns[i] is the column of Trifold's matrix that is column i in the file; empty: same order.
  std::vector<int64_t> columns = {};
};

// Every weight of a model, tables first, with Trifold's names.
std::vector<FileWeight> own_weights(const RecommenderSetup& setup);

// Every weight of a model, tables first, with TorchRec's names. TorchRec orders the products of pairs of vectors as (0,
// 1), (0, 2), ..., so columns are permuted. BadInput, beginning with `what`, for a model that TorchRec lacks.
std::vector<FileWeight> torchrec_weights(const RecommenderSetup& setup, const std::string& what);

}  // namespace trifold
