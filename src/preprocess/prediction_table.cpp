#include "preprocess/prediction_table.h"

#include "core/error.h"
#include "preprocess/parquet_library.h"

namespace trifold {

PredictionTable::PredictionTable(const std::vector<std::string>& labels,
                                 const std::vector<std::string>& probabilities, bool doubles)
    : columns_(probabilities.size()) {
  std::vector<const char*> names;
  for (const std::string& name : labels) names.push_back(name.c_str());
  for (const std::string& name : probabilities) names.push_back(name.c_str());
  writer_.reset(parquet_library("predictions")
                    .write(names.data(), std::ssize(labels), std::ssize(probabilities), doubles));
}

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
  return bytes(writer_->add(first, std::ssize(labels) / static_cast<int64_t>(columns_), labels.data(),
                            probabilities.data()));
}

std::string_view PredictionTable::finish() { return bytes(writer_->finish()); }

}  // namespace trifold
