// Writes the weights of a recommender's checkpoint to a safetensors file, all of them or the changed rows.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

struct ExportedTensors {
  std::string from, to;
  int64_t tensors = 0;
  int64_t bytes = 0;     // bytes of elements
  int64_t rows = 0;      // table rows in the file
  int64_t all_rows = 0;  // table rows in the checkpoint
};

// `config.names` decides the names of tensors (recommend/weights/weight_names.h). Tables whose ids are keys also have
// embedding.NAME.keys, i64 [rows]: the key of each row, 0 for rows without one.
//
// With config.changed_since, an older checkpoint of the same model, a table consists of embedding.NAME.rows, i64 [n],
// the ascending indices of the rows whose values or key have changed or which are new, and embedding.NAME.weight [n,
// width]. All other weights are whole, and step and since_step, i64 [1], are the steps of the two checkpoints. The
// older file with these rows and weights replaced equals the newer one.
//
// BadInput if the models differ in anything but additional rows of a table, or if the file cannot be written. Takes a
// few MiB of memory, and 8 bytes for each changed row.
ExportedTensors export_tensors(CheckpointReader& from, const ConvertConfig& config);

}  // namespace trifold
