// Cuts the steps of a lowered graph into blocks: one for each module with a number in its path ("model.h.0"), as the
// layers of a list have, and for what is before, between and after them. Between two such modules the cut is where the
// fewest elements cross.
#pragma once

#include <string>
#include <string_view>

#include "graph/lower/lowered.h"

namespace trifold::graph {

// The path up to and including its first number: "model.h.0" of "model.h.0.attn"; empty if it has none.
std::string numbered_module(std::string_view path);

// Sets `blocks`. Lookups in a table that an earlier step reads move to that step, so that a table is used in few blocks.
void cut_into_blocks(LoweredGraph& lowered);

}  // namespace trifold::graph
