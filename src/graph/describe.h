// The report about a graph that `trifold inspect` prints.
#pragma once

#include <string>

#include "graph/graph.h"

namespace trifold::graph {

// Inputs, outputs, parameters with ties and parameters that the loss does not reach, buffers, operations by count, the
// outermost modules with their parameters, and all operations that are not in the table, each with module and line.
std::string describe(const Graph& graph);

}  // namespace trifold::graph
