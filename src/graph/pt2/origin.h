// Where a node of a file comes from: its module and Python line.
#pragma once

#include <string>

#include "core/read_json.h"
#include "graph/graph.h"

namespace trifold::graph {

// From a node's "name" and "metadata": nn_module_stack is "KEY,PATH,CLASS;...", outermost module first, and stack_trace
// what Python prints. Of the calls, the innermost one outside torch/nn counts. What is absent or unreadable is empty.
Origin read_origin(const JsonView& node);

}  // namespace trifold::graph
