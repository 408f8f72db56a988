#include "launch/click_lines.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "core/printable.h"

namespace trifold::launch {

nlohmann::json score_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::string score_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

namespace {

// A mean over samples, if there are any: a label may be missing in all of them.
std::optional<double> of_samples(const ClickScores& scores, double mean) {
  return scores.samples > 0 ? std::optional(mean) : std::nullopt;
}

}  // namespace

std::string scores_text(const ClickScores& scores) {
  const std::string loss = scores.samples > 0 ? fmt::format("{:.5f}", scores.log_loss) : "-";
  return fmt::format("log loss {}  normalised entropy {}  accuracy {}  calibration {}", loss,
                     score_text(scores.normalised_entropy), score_text(of_samples(scores, scores.accuracy)),
                     score_text(scores.calibration));
}

void add_scores(nlohmann::ordered_json& object, const ClickScores& scores, const std::string& prefix) {
  object[prefix + "auc"] = score_json(scores.auc);
  object[prefix + "log_loss"] = score_json(of_samples(scores, scores.log_loss));
  object[prefix + "normalised_entropy"] = score_json(scores.normalised_entropy);
  object[prefix + "accuracy"] = score_json(of_samples(scores, scores.accuracy));
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
