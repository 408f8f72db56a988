// How well clicks are predicted, for people and as JSON: the same from `recommend` and `evaluate`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "recommend/click_metrics.h"

namespace trifold::launch {

// "0.8123", or "-" for what the samples do not define.
std::string score_text(const std::optional<double>& value);
// The same with all digits; null.
nlohmann::json score_json(const std::optional<double>& value);

// "log loss 0.52  normalised entropy 0.9  accuracy 0.8  calibration 1.01": all but the AUC.
std::string scores_text(const ClickScores& scores);

// Adds auc, log_loss, normalised_entropy, accuracy, calibration and samples to `object`, each with `prefix` in
// front of its name; null for what the samples do not define.
void add_scores(nlohmann::ordered_json& object, const ClickScores& scores, const std::string& prefix = "");

}  // namespace trifold::launch
