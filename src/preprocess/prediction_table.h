// PredictionTable: predictions as the bytes of a Parquet file, with the columns sample (int64), those of labels (int8,
// where there are labels) and those of probabilities (float or double).
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
  // Failure where the module of Parquet is missing.
  PredictionTable(const std::vector<std::string>& labels, const std::vector<std::string>& probabilities,
                  bool doubles);

  // The next samples, numbered from `first`: their labels, 0, 1 or -1 for one that is missing, and their probabilities,
  // one for each column of a sample. Both spans have the same length; without columns of labels those are not read.
  // Both functions return the next bytes of the file, which are valid until the next call.
  std::string_view add(int64_t first, std::span<const int8_t> labels, std::span<const double> probabilities);
  // Once, after the last samples.
  std::string_view finish();

 private:
  std::string_view bytes(bool done);
  size_t columns_;  // of probabilities
  std::unique_ptr<ParquetModuleWriter> writer_;
};

}  // namespace trifold
