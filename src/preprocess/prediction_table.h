// PredictionTable: predictions as the bytes of a Parquet file, with the columns sample (int64), label (int8, where there are
// labels) and probability (float or double).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "preprocess/parquet_module.h"

namespace trifold {

class PredictionTable {
 public:
  // Failure where the module of Parquet is missing.
  PredictionTable(bool labeled, bool doubles);

  // The next samples, numbered from `first`; the labels are 0 or 1. What both functions return are the next bytes of the
  // file, until the next call.
  std::string_view add(int64_t first, std::span<const int8_t> labels, std::span<const double> probabilities);
  // Once, after the last samples.
  std::string_view finish();

 private:
  std::string_view bytes(bool done);
  std::unique_ptr<ParquetModuleWriter> writer_;
};

}  // namespace trifold
