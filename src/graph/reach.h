// Which parameters of a graph can be trained: gradients flow along operations that have them and through
// floating-point values.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace trifold::graph {

// For each of graph.inputs: whether it is a parameter with requires_grad from which a gradient path leads to `output`
// (an index in graph.outputs), or from a parameter that it is tied to. Operations that are not in the table pass
// gradients.
std::vector<bool> trained_inputs(const Graph& graph, size_t output);

}  // namespace trifold::graph
