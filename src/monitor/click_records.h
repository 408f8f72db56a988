// The records of runs of recommenders, and the scores of their predictions as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "monitor/record.h"
#include "recommend/recommend.h"

namespace trifold {

// The value with all digits; null if the samples do not define it.
nlohmann::json score_json(const std::optional<double>& value);

// A mean over samples; nullopt without samples, because a label may be missing in all of them.
std::optional<double> mean_of_samples(const ClickScores& scores, double mean);

// Adds the scores of every label: auc, log_loss, normalised_entropy, accuracy, calibration and samples, each name
// preceded by `prefix`, null if the samples do not define it. Of several labels the mean of their AUC, and then an
// object "labels" with the scores by label.
void add_label_scores(nlohmann::ordered_json& object, const std::vector<LabelScores>& labels,
                      const std::string& prefix = "");

// `has_norm`: gradients are clipped, so that their norm is known. `rows`: the rows of tables in files that the step
// asked for; null without such tables.
RunRecord record_of_clicks(const StepReport& step, bool has_norm, const RowCache::Counts* rows);
RunRecord record_of(const ClickEvaluation& evaluation);

}  // namespace trifold
