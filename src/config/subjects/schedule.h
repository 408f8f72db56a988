// The schedule, the stages of the pipeline, and the layers and blocks of each stage.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_pipeline(OptionTable& table, PipelineConfig& pipeline, MeshConfig& mesh);
// Checks stages, schedule and number of micro-batches; for asynchronous schedules also the options that need a drained
// pipeline.
void check_pipeline(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
