// Maps the actions of a rank's row to the units of a FlatLayout, and derives which weights are gathered at the same
// time, and which gradients are in memory at the same time.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"
#include "pipeline/executor.h"
#include "schedule/passes.h"

namespace trifold {

// The indices of the units of each name in actions. Units of one block that are summed over different data axes have
// the same name and are gathered and released together.
using IndicesOfUnits = std::map<WeightUnit, std::vector<int>>;
IndicesOfUnits indices_of_units(const FlatLayout& layout, const std::vector<Stage>& stages);

// The row of a rank that runs `stages`, with the actions that gather sharded weights.
RankPlan add_gathering(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages);

// The pairs of units, by index, whose weights are gathered at the same time in a row of add_gathering.
std::vector<std::pair<int, int>> units_gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                         const std::vector<Stage>& stages);

// The pairs of units, by index, whose gradients are in memory at the same time if they are reduced after each
// micro-batch. Excludes units with a weight whose other use is on another rank.
std::vector<std::pair<int, int>> units_reduced_together(const RankPlan& row, const FlatLayout& layout,
                                                        const std::vector<Stage>& stages);

// The number of weight versions that must exist at the same time to run this row; 1 if the schedule is synchronous.
int weight_versions(const RankPlan& row);

}  // namespace trifold
