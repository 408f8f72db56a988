// The blocks of a model from a file and what training them costs as lines of text, for `trifold inspect`.
#pragma once

#include <string>

#include "graph/lower/lowered.h"
#include "plan/model_costs.h"

namespace trifold::launch {

// A table with a line for each block, and the flops and the memory of a step.
std::string block_lines(const graph::LoweredGraph& lowered, const ModelCosts& costs);

}  // namespace trifold::launch
