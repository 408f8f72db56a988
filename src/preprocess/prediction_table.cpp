#include "preprocess/prediction_table.h"

#include "core/error.h"
#include "preprocess/parquet_library.h"

namespace trifold {

PredictionTable::PredictionTable(bool labeled, bool doubles)
    : writer_(parquet_library("predictions").write(labeled, doubles)) {}

std::string_view PredictionTable::bytes(bool done) {
  check(done, "a Parquet file of predictions could not be made: {}", writer_->problem());
  size_t count = 0;
  const char* data = writer_->written(&count);
  return {data, count};
}

std::string_view PredictionTable::add(int64_t first, std::span<const int8_t> labels,
                                      std::span<const double> probabilities) {
  check(labels.size() == probabilities.size(), "{} labels for {} predictions", labels.size(),
        probabilities.size());
  return bytes(writer_->add(first, std::ssize(labels), labels.data(), probabilities.data()));
}

std::string_view PredictionTable::finish() { return bytes(writer_->finish()); }

}  // namespace trifold
