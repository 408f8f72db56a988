// What a PipelineConfig means: the schedule, and how many stages a rank has.
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

// The schedule comes from a file (its name ends in .csv).
bool schedule_from_file(const PipelineConfig& pipeline);

// The schedule, which follows from the stages of a rank where it is not named; nullopt when it comes from a
// file.
std::optional<Schedule> chosen_schedule(const PipelineConfig& pipeline);

// Stages of each rank; nullopt where --num-layers-per-virtual-pipeline-stage does not divide the layers. For
// a schedule from a file it is what the options say, 1 where they say nothing.
std::optional<int> stages_per_rank(const PipelineConfig& pipeline, int64_t num_layers, int pipeline_ranks);

// Fills in schedule, stages of a rank and window. The configuration must have no problems.
void fill_pipeline(PretrainConfig& config);

}  // namespace trifold
