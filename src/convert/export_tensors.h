// Writes the weights of a recommender's checkpoint to one safetensors file, as a whole or the rows that have changed.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

struct ExportedTensors {
  std::string from, to;
  int64_t tensors = 0;
  int64_t bytes = 0;     // of elements
  int64_t rows = 0;      // of tables, in the file
  int64_t all_rows = 0;  // of tables, in the checkpoint
};

// `config.names` says how tensors are called (recommend/weights/weight_names.h). Tables whose ids are keys also have
// embedding.NAME.keys, i64 [rows]: the key of each row, 0 for rows without one.
//
// With config.changed_since, an older checkpoint of the same model, a table consists of embedding.NAME.rows, i64 [n],
// the rows whose numbers, or key, are not those that it has there, ascending, and embedding.NAME.weight [n, width];
// rows that only the newer one has are among them. All other weights are whole, and step and since_step, i64 [1], say
// between which steps the changes were made. So the older file, with these rows and weights put in their places, is
// the newer one.
//
// BadInput if the models differ otherwise than by rows that a table has more, or if the file cannot be written. Takes
// a few MiB of memory, and 8 bytes for each row that has changed.
ExportedTensors export_tensors(CheckpointReader& from, const ConvertConfig& config);

}  // namespace trifold
