// The cut of a model into pipeline stages as lines of text, for `trifold plan` and `trifold pretrain`.
#pragma once

#include <string>
#include <vector>

#include "layout/stage_report.h"

namespace trifold::launch {

// A headline and a line for each stage; neighbouring stages of the same size share a line.
std::vector<std::string> stage_lines(const std::vector<StageReport>& stages, int pipeline_ranks);

// "1.01 T", "174.6 G", "38.6 k"
std::string count_text(double value);

// A rate with at least two digits that count: "0.71", "9.30", "23.4", "9703".
std::string rate_text(double per_second);

}  // namespace trifold::launch
