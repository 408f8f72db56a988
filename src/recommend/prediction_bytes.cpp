#include "recommend/prediction_bytes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trifold {

namespace {

using Columns = PredictionTable::Columns;
using Rows = PredictionTable::Rows;

// A field as in RFC 4180.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A line for each row; a missing value is an empty field, or null.
class PredictionLines final : public PredictionBytes {
 public:
  PredictionLines(ScoreFormat format, Columns columns)
      : csv_(format == ScoreFormat::Csv), columns_(std::move(columns)) {}

  std::string_view header() override {
    text_.clear();
    if (csv_) {
      add("sample");
      for (const auto* names : {&columns_.texts, &columns_.labels, &columns_.probabilities})
        for (const std::string& name : *names) add(",{}", csv_field(name));
      add("\n");
    }
    return view();
  }
  std::string_view of(const Rows& rows) override {
    text_.clear();
    for (size_t row = 0; row < rows.samples.size(); ++row) add_line(rows, row);
    return view();
  }

 private:
  void add_line(const Rows& rows, size_t row) {
    add(csv_ ? "{}" : "{{\"sample\":{}", rows.samples[row]);
    for (size_t c = 0; c < columns_.texts.size(); ++c) {
      const std::string& text = rows.texts[c][row];
      add_value(columns_.texts[c], text.empty(), csv_ ? csv_field(text) : json_text(text));
    }
    for (size_t c = 0; c < columns_.labels.size(); ++c) {
      const int label = rows.labels[row * columns_.labels.size() + c];
      add_value(columns_.labels[c], label < 0, label);
    }
    for (size_t c = 0; c < columns_.probabilities.size(); ++c) {
      const double probability = rows.probabilities[row * columns_.probabilities.size() + c];
      const std::string& name = columns_.probabilities[c];
      if (columns_.doubles)
        add_value(name, std::isnan(probability), probability);
      else
        add_value(name, std::isnan(probability), static_cast<float>(probability));
    }
    add(csv_ ? "\n" : "}}\n");
  }
  template <class T>
  void add_value(const std::string& name, bool missing, const T& value) {
    if (csv_)
      add(",");
    else
      add(",{}:", json_text(name));
    if (!missing)
      add("{}", value);
    else if (!csv_)
      add("null");
  }
  template <class... Args>
  void add(std::string_view format, const Args&... args) {
    fmt::vformat_to(std::back_inserter(text_), format, fmt::make_format_args(args...));
  }
  std::string_view view() const { return {text_.data(), text_.size()}; }

  bool csv_;
  Columns columns_;
  fmt::memory_buffer text_;
};

// Rows of a Parquet file.
class PredictionRows final : public PredictionBytes {
 public:
  explicit PredictionRows(const Columns& columns) : table_(columns) {}
  std::string_view of(const Rows& rows) override { return table_.add(rows); }
  std::string_view end() override { return table_.finish(); }

 private:
  PredictionTable table_;
};

}  // namespace

std::unique_ptr<PredictionBytes> prediction_bytes(ScoreFormat format, const Columns& columns) {
  if (format == ScoreFormat::Parquet) return std::make_unique<PredictionRows>(columns);
  return std::make_unique<PredictionLines>(format, columns);
}

}  // namespace trifold
