// The steps of a run whose batch grows (--rampup-batch-size), by the size of the batch: for `trifold plan`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/report.h"

namespace trifold::launch {

struct PlannedSize {
  StepsOfSize batch;  // `steps`: kEndless for the full size
  int micros = 0;     // micro-batches of a step on one data-parallel rank
  PlanOutcome outcome;
};

// A plan for each size; none if the batch does not grow. Throws as PlannedRun does.
std::vector<PlannedSize> planned_sizes(const RunSpec& run, const PlannedMachine& machine);

std::vector<std::string> size_lines(const std::vector<PlannedSize>& sizes);
nlohmann::ordered_json to_json(const std::vector<PlannedSize>& sizes);

}  // namespace trifold::launch
