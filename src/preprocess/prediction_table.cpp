#include "preprocess/prediction_table.h"

#include "core/error.h"
#include "preprocess/parquet_library.h"

namespace trifold {

PredictionTable::PredictionTable(const Columns& columns) {
  std::vector<const char*> names;
  for (const auto* of_kind : {&columns.texts, &columns.labels, &columns.probabilities})
    for (const std::string& name : *of_kind) names.push_back(name.c_str());
  writer_.reset(parquet_library("predictions")
                    .write(names.data(), std::ssize(columns.texts), std::ssize(columns.labels),
                           std::ssize(columns.probabilities), columns.doubles));
}

std::string_view PredictionTable::bytes(bool done) {
  check(done, "a Parquet file of predictions could not be made: {}", writer_->problem());
  size_t count = 0;
  const char* data = writer_->written(&count);
  return {data, count};
}

std::string_view PredictionTable::add(const Rows& rows) {
  std::string texts;
  std::vector<int64_t> places;
  for (const std::vector<std::string>& column : rows.texts) {
    places.push_back(std::ssize(texts));
    for (const std::string& text : column) {
      texts += text;
      places.push_back(std::ssize(texts));
    }
  }
  return bytes(writer_->add(rows.samples.data(), std::ssize(rows.samples), rows.labels.data(),
                            rows.probabilities.data(), texts.data(), places.data()));
}

std::string_view PredictionTable::finish() { return bytes(writer_->finish()); }

}  // namespace trifold
