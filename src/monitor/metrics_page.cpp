#include "monitor/metrics_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {

// A metric's name has letters, digits and underscores only.
std::string name_of_metric(std::string text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::replace_if(
      text.begin(), text.end(), [&](char c) { return !fits(c); }, '_');
  return "trifold_" + text;
}

std::string label(std::string_view name, std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return fmt::format("{{{}=\"{}\"}}", name, escaped);
}

}  // namespace

void MetricsPage::update(const RunRecord& record, double now) {
  const std::lock_guard lock(mutex_);
  for_each_number(record, [&](const std::string& path, double value) {
    const size_t end = path.find('/');
    const std::string of = end == std::string::npos ? "" : label("of", path.substr(end + 1));
    metrics_[name_of_metric(path.substr(0, end))].values[of] = value;
  });
  metrics_["trifold_step"].values[""] = static_cast<double>(record.step);
  metrics_["trifold_last_record_timestamp_seconds"].values[""] = now;
  if (record.event.empty()) return;
  Metric& events = metrics_["trifold_events_total"];
  events.type = "counter";
  ++events.values[label("event", record.event)];
}

std::string MetricsPage::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, metric] : metrics_) {
    text += fmt::format("# TYPE {} {}\n", name, metric.type);
    for (const auto& [labels, value] : metric.values)
      text += std::isnan(value) ? fmt::format("{}{} NaN\n", name, labels)
                                : fmt::format("{}{} {}\n", name, labels, value);
  }
  return text;
}

}  // namespace trifold
