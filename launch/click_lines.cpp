#include "launch/click_lines.h"

#include <fmt/format.h>

#include <utility>

#include "core/printable.h"

namespace trifold::launch {

nlohmann::json score_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::string score_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

std::string scores_text(const ClickScores& scores) {
  return fmt::format("log loss {:.5f}  normalised entropy {}  accuracy {:.4f}  calibration {}",
                     scores.log_loss, score_text(scores.normalised_entropy), scores.accuracy,
                     score_text(scores.calibration));
}

void add_scores(nlohmann::ordered_json& object, const ClickScores& scores, const std::string& prefix) {
  object[prefix + "auc"] = score_json(scores.auc);
  object[prefix + "log_loss"] = scores.log_loss;
  object[prefix + "normalised_entropy"] = score_json(scores.normalised_entropy);
  object[prefix + "accuracy"] = scores.accuracy;
  object[prefix + "calibration"] = score_json(scores.calibration);
  object[prefix + "samples"] = scores.samples;
}

void add_label_scores(nlohmann::ordered_json& object, const std::vector<LabelScores>& labels,
                      const std::string& prefix) {
  if (labels.size() == 1) return add_scores(object, labels[0].scores, prefix);
  object[prefix + "auc"] = score_json(mean_auc(labels));
  nlohmann::ordered_json by_name = nlohmann::ordered_json::object();
  for (const LabelScores& label : labels) add_scores(by_name[label.label], label.scores);
  object["labels"] = std::move(by_name);
}

std::string label_text(const LabelScores& label) {
  return label.label.empty() ? "" : fmt::format("label {}  ", printable(label.label));
}

}  // namespace trifold::launch
