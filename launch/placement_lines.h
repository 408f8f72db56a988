// Formats the placement of embedding tables as lines of text.
#pragma once

#include <string>
#include <vector>

#include "embedding/planner.h"
#include "recommend/planning/recommender_memory.h"

namespace trifold::launch {

// A summary line, and a line for each rank if there are several.
std::vector<std::string> placement_lines(const std::vector<EmbeddingTable>& tables,
                                         const std::vector<TablePlacement>& placement,
                                         const std::vector<RankLoad>& loads);

// A rank's memory by purpose: "tables 3.00 GiB, their state 0, ...".
std::string parts_text(const RecommenderMemory& memory);

}  // namespace trifold::launch
