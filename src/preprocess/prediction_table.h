// PredictionTable: predictions as the bytes of a Parquet file, with the columns sample (int64), those of texts (string),
// those of labels (int8, where there are labels) and those of probabilities (float or double).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "preprocess/parquet_module.h"

namespace trifold {

class PredictionTable {
 public:
  struct Columns {
    std::vector<std::string> texts, labels, probabilities;
    bool doubles = false;
  };
  // Values of consecutive rows. Cleared and filled by the caller.
  struct Rows {
    std::vector<int64_t> samples;
    std::vector<int8_t> labels;                   // [rows, columns]: 0, 1 or -1 for a missing one
    std::vector<double> probabilities;            // [rows, columns]; NaN is a missing one
    std::vector<std::vector<std::string>> texts;  // [columns][rows]; an empty one is missing
  };

  // Failure where the module of Parquet is missing.
  explicit PredictionTable(const Columns& columns);

  // The next rows. Both functions return the next bytes of the file, which are valid until the next call.
  std::string_view add(const Rows& rows);
  // Once, after the last rows.
  std::string_view finish();

 private:
  std::string_view bytes(bool done);
  std::unique_ptr<ParquetModuleWriter> writer_;
};

}  // namespace trifold
