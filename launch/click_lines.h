// Formats the metrics of click predictions as text and as JSON, for both `recommend` and `evaluate`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "recommend/metrics/label_metrics.h"
#include "recommend/metrics/unknown_values.h"

namespace trifold::launch {

// "0.8123", or "-" if the samples do not define the score.
std::string score_text(const std::optional<double>& value);
// "log loss 0.52  normalised entropy 0.9  accuracy 0.8  calibration 1.01": all scores but the AUC.
std::string scores_text(const ClickScores& scores);

// "label click  " before the scores of one of several labels, else nothing.
std::string label_text(const LabelScores& label);

// The correction of all log odds for negatives that were dropped; empty if there is none.
std::string correction_line(double offset);

// The number of unknown values of each table that has any, followed by a warning if all of them are unknown.
std::vector<std::string> unknown_lines(const std::vector<TableUnknowns>& counts);
// "table user: 3 of 20 values (15.0 %)"
std::string unknown_share(const std::string& table, int64_t values, int64_t unknown);
// A warning if none of a table's values is known; else empty.
std::string unknown_warning(const std::string& table, int64_t values, int64_t unknown);
// {"user": {"values": 20, "unknown": 3}}
nlohmann::ordered_json unknown_json(const std::vector<TableUnknowns>& counts);

}  // namespace trifold::launch
