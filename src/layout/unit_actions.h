// Maps the actions of a rank's row to the units of a flat layout, and derives which weights are gathered, and
// which gradients are in memory, at the same time.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"
#include "pipeline/executor.h"
#include "schedule/passes.h"

namespace trifold {

// The units that share one name in actions, by index: units of one block that are summed over different data
// axes have the same name and are gathered and released together.
using IndicesOfUnits = std::map<WeightUnit, std::vector<int>>;
IndicesOfUnits indices_of_units(const FlatLayout& layout, const std::vector<Stage>& stages);

// The row of a rank that runs `stages`, with the actions that gather sharded weights.
RankPlan add_gathering(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages);

// The pairs of units whose weights are gathered at the same time in such a row, by index.
std::vector<std::pair<int, int>> units_gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                         const std::vector<Stage>& stages);

// The pairs of units whose gradients are in memory at the same time if they are reduced after each
// micro-batch, by index. The unit of a weight whose other use is on another rank is never among them.
std::vector<std::pair<int, int>> units_reduced_together(const RankPlan& row, const FlatLayout& layout,
                                                        const std::vector<Stage>& stages);

// The number of weight versions that must exist at once to run this row; 1 if the schedule is synchronous.
int weight_versions(const RankPlan& row);

}  // namespace trifold
