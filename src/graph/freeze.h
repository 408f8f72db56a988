// Parameters that a run does not train although the file would.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace trifold::graph {

// Sets requires_grad to false for the parameters whose names match one of `patterns`, with the wildcards of shells: *
// stands for any characters, dots included, ? for one, [01] for one of several. A tied parameter matches by any of its
// names. Returns the names of parameters that were trained before, of a tied one the name of its first use, in the order
// of the graph. BadInput, with similar names, for a pattern that matches no parameter, and if no trained parameter is
// left.
std::vector<std::string> freeze(Graph& graph, std::span<const std::string> patterns);

}  // namespace trifold::graph
