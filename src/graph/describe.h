// The report about a graph that `trifold inspect` prints.
#pragma once

#include <string>

#include "graph/graph.h"

namespace trifold::graph {

// Inputs, outputs, parameters with ties and parameters that the loss does not reach, buffers, operations by count, and the
// outermost modules with their parameters.
std::string describe(const Graph& graph);

}  // namespace trifold::graph
