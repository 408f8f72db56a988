// The cut of a model into pipeline stages as lines of text, for `trifold plan` and `trifold pretrain`.
#pragma once

#include <string>
#include <vector>

#include "layout/stage_report.h"

namespace trifold::launch {

// A headline and a line for each stage; neighbouring stages of the same size share a line.
std::vector<std::string> stage_lines(const std::vector<StageReport>& stages, int pipeline_ranks);

}  // namespace trifold::launch
