#include "monitor/click_records.h"

#include <utility>

#include "core/host_memory.h"

namespace trifold {

nlohmann::json score_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::optional<double> mean_of_samples(const ClickScores& scores, double mean) {
  return scores.samples > 0 ? std::optional(mean) : std::nullopt;
}

namespace {

void add_scores(nlohmann::ordered_json& object, const ClickScores& scores, const std::string& prefix) {
  object[prefix + "auc"] = score_json(scores.auc);
  object[prefix + "log_loss"] = score_json(mean_of_samples(scores, scores.log_loss));
  object[prefix + "normalised_entropy"] = score_json(scores.normalised_entropy);
  object[prefix + "accuracy"] = score_json(mean_of_samples(scores, scores.accuracy));
  object[prefix + "calibration"] = score_json(scores.calibration);
  object[prefix + "samples"] = scores.samples;
  if (scores.weight) object[prefix + "weight"] = *scores.weight;
}

}  // namespace

void add_label_scores(nlohmann::ordered_json& object, const std::vector<LabelScores>& labels,
                      const std::string& prefix) {
  if (labels.size() == 1) return add_scores(object, labels[0].scores, prefix);
  object[prefix + "auc"] = score_json(mean_auc(labels));
  nlohmann::ordered_json by_name = nlohmann::ordered_json::object();
  for (const LabelScores& label : labels) add_scores(by_name[label.label], label.scores, "");
  object["labels"] = std::move(by_name);
}

RunRecord record_of_clicks(const StepReport& step, bool has_norm, const RowCache::Counts* rows) {
  RunRecord record{.step = step.step};
  record.values = {{"loss", finite_number(step.loss)},
                   {"lr", finite_number(step.lr)},
                   {"samples", step.samples},
                   {"step_seconds", finite_number(step.step_seconds)},
                   {"samples_per_second", finite_number(step.samples_per_second())},
                   {"resident_bytes", resident_memory()}};
  if (step.skipped()) record.values["skipped"] = true;
  if (has_norm) record.values["grad_norm"] = finite_number(step.grad_norm);
  if (rows != nullptr) {
    record.values["file_rows"] = rows->wanted;
    record.values["file_rows_in_memory"] = rows->found;
    record.values["file_rows_read"] = rows->read;
  }
  return record;
}

RunRecord record_of(const ClickEvaluation& evaluation) {
  RunRecord record{.step = evaluation.step, .part = "valid"};
  add_label_scores(record.values, evaluation.labels, "valid_");
  record.values["seconds"] = evaluation.seconds;
  return record;
}

}  // namespace trifold
