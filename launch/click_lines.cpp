#include "launch/click_lines.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "core/printable.h"
#include "monitor/click_records.h"

namespace trifold::launch {

std::string score_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

std::string scores_text(const ClickScores& scores) {
  const std::string loss = scores.samples > 0 ? fmt::format("{:.5f}", scores.log_loss) : "-";
  return fmt::format("log loss {}  normalised entropy {}  accuracy {}  calibration {}", loss,
                     score_text(scores.normalised_entropy),
                     score_text(mean_of_samples(scores, scores.accuracy)), score_text(scores.calibration));
}

std::string label_text(const LabelScores& label) {
  return label.label.empty() ? "" : fmt::format("label {}  ", printable(label.label));
}

std::string correction_line(double offset) {
  if (offset == 0) return "";
  return fmt::format(
      "log odds are corrected by {:.4f} for negatives that were dropped (--no-correct-negatives leaves them)",
      offset);
}

std::string unknown_share(const std::string& table, int64_t values, int64_t unknown) {
  return fmt::format("table {}: {} of {} values ({:.1f} %)", printable(table), unknown, values,
                     values == 0 ? 0.0 : 100 * static_cast<double>(unknown) / static_cast<double>(values));
}

std::string unknown_warning(const std::string& table, int64_t values, int64_t unknown) {
  if (values == 0 || unknown < values) return "";
  return fmt::format(
      "warning: table {}: none of the {} values is known. Are they written as in the training data? 2.0 is not 2, "
      "and case and blanks count",
      printable(table), values);
}

std::vector<std::string> unknown_lines(const std::vector<TableUnknowns>& counts) {
  std::vector<std::string> lines;
  for (const TableUnknowns& of : counts) {
    if (of.unknown == 0) continue;
    lines.push_back(unknown_share(of.table, of.values, of.unknown) + " are unknown to the model");
    std::string warning = unknown_warning(of.table, of.values, of.unknown);
    if (!warning.empty()) lines.push_back(std::move(warning));
  }
  return lines;
}

nlohmann::ordered_json unknown_json(const std::vector<TableUnknowns>& counts) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const TableUnknowns& of : counts) object[of.table] = {{"values", of.values}, {"unknown", of.unknown}};
  return object;
}

}  // namespace trifold::launch
