// PredictionTable encodes predictions as the bytes of a Parquet file. Its columns are, in this order: sample (int64),
// the columns of texts (string), of labels if the data have any (int8), and of probabilities (float or double).
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
  // Values of consecutive rows, filled by the caller.
  struct Rows {
    std::vector<int64_t> samples;
    std::vector<int8_t> labels;                   // [rows, columns]; 0, 1, or -1 if missing
    std::vector<double> probabilities;            // [rows, columns]; NaN if missing
    std::vector<std::vector<std::string>> texts;  // [columns][rows]; empty if missing
  };

  // Failure if the Parquet module is missing.
  explicit PredictionTable(const Columns& columns);

  // Adds rows. Both functions return the next bytes of the file, which are valid until the next call.
  std::string_view add(const Rows& rows);
  // Completes the file. To be called once, after the last rows.
  std::string_view finish();

 private:
  std::string_view bytes(bool done);
  std::unique_ptr<ParquetModuleWriter> writer_;
};

}  // namespace trifold
