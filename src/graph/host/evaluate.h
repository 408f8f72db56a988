// Evaluates nodes of a graph on the host. They make constants, or prepare arrays of a batch (graph/preparation.h). What depends on parameters is lowered to blocks instead.
//
// One table has a row for each operation (graph/host/rows.h). Results have the types and shapes of the graph; a float
// result agrees with PyTorch's on a CPU but for the rounding of sums and functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/function_ref.h"
#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

// Whether the table has the node's operation. Random operations (dropout of a probability above 0) are not evaluated.
bool can_evaluate(const Node& node);

// The outputs of a node for `batch` samples; an array without elements for an output that is None. `values` gives its
// inputs and is called from this thread. BadInput, naming the node, if an index is out of range, if shapes do not fit
// together, or if an array would be too large; Failure if can_evaluate is false. Several threads may call it.
std::vector<Array> evaluate(const Graph& graph, const Node& node, FunctionRef<const Array&(ValueId)> values,
                            int64_t batch);

}  // namespace trifold::graph
