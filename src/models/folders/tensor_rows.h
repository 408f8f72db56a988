// TensorRowsReader reads the rows of a parameter from the tensors of transformers that hold them (WeightMap): it puts
// rows in the parameter's order, transposes, and dequantises.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/tensor.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {

// A tensor in the files; one in MXFP4 (models/folders/mxfp4.h) consists of two.
struct FolderTensor {
  SafetensorsModel::Entry values;  // or blocks
  SafetensorsModel::Entry scales = {};

  bool mxfp4() const { return scales.tensor != nullptr; }
  // The type in which the elements are read.
  DType dtype() const;
};

// What is wrong with the shape and type of a tensor that should be `shape`, as WeightMap::their_shape gives it.
std::vector<std::string> problems_of(const FolderTensor& source, const std::vector<int64_t>& shape);

class TensorRowsReader {
 public:
  struct Columns {
    int64_t first, count;
  };
  // Reads `columns` of the rows [begin, end) of a part of a parameter. The result [end - begin, columns.count], of
  // source.dtype(), stays valid until the next call. BadInput if a quantised value is not finite. Memory: up to 3 times the bytes of the rows in f64.
  const std::byte* read(const WeightMap& map, const TensorRows& part, const FolderTensor& source,
                        int64_t begin, int64_t end, Columns columns);

 private:
  struct Place;
  void read_rows(const Place& place, const TensorRows::Run& run, int64_t at);
  void read_columns(const Place& place, const TensorRows::Run& run, int64_t at);
  void read_quantised(const Place& place, const TensorRows::Run& run, int64_t at);

  Buffer rows_, turned_, span_;
};

}  // namespace trifold
