// Exports a trained recommender in the ONNX format, for programs that only predict.
//
//   dense         f32 [batch, dense]   values before the transform of the training data, which is part of the
//                                      graph; NaN is a missing one. Absent without dense features
//   ids.<table>   i64 [batch, any]     the ids of a sample's bag; -1 pads bags to the width of the widest. Each is
//                                      below the rows of the table, unless the training data were read with an id
//                                      policy, which is part of the graph
//   weights.<table>  f32 [batch, any]  the weights of these ids; only if the training data had some
//   logit         f32 [batch]
//   probability   f32 [batch]
//
// Everything is computed in f32. The file's metadata_props name the checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

struct ExportedOnnx {
  std::string from, to;
  int64_t tables = 0;
  int64_t bytes = 0;
};

// Writes the file config.save, whose name ends in .onnx. BadInput for another name, for options that have no effect
// here, and for a checkpoint that is damaged, that does not record the transform of its dense values, or whose weights
// take 2 GiB or more.
ExportedOnnx export_onnx(CheckpointReader& from, const ConvertConfig& config);

}  // namespace trifold
