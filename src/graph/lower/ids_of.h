// Finds the ids that steps use, for the host to check (graph/id_check.h).
#pragma once

#include <vector>

#include "graph/lower/lowered.h"

namespace trifold::graph {

// For each step with Rule::id_arguments whose ids, and weights if it has some, are prepared.
std::vector<IdCheck> ids_of_steps(const LoweredGraph& lowered);

}  // namespace trifold::graph
