// Interprets a PipelineConfig: the schedule, and the number of stages per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "config/fields/schedule.h"

namespace trifold {

// The names of all schedules, in order.
std::vector<std::string> known_schedules();

// Whether the schedule comes from a file (its name ends in .csv).
bool schedule_from_file(const PipelineConfig& pipeline);

// The schedule, derived from the stages per rank if it is not given; nullopt if it comes from a file.
std::optional<Schedule> chosen_schedule(const PipelineConfig& pipeline);

// Stages per rank; nullopt if --num-layers-per-virtual-pipeline-stage does not divide the layers. For a schedule from a
// file, the number that the options give, or 1.
std::optional<int> stages_per_rank(const PipelineConfig& pipeline, int64_t num_layers, int pipeline_ranks);

// Fills in schedule, stages per rank and window. The configuration must have no problems.
void fill_pipeline(PretrainConfig& config);

}  // namespace trifold
