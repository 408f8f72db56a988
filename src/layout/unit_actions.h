// Which units of a flat layout the actions of a rank's row mean, and what a row asks of them: weights that
// are gathered, gradients that are in memory at one time.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"
#include "pipeline/executor.h"
#include "schedule/passes.h"

namespace trifold {

// The units that actions know by one name, by index. Units of one block that are summed over other data axes
// share a name: they come and go together.
using IndicesOfUnits = std::map<WeightUnit, std::vector<int>>;
IndicesOfUnits indices_of_units(const FlatLayout& layout, const std::vector<Stage>& stages);

// A row of a rank that runs `stages`, with the gathering of weights that sharded parameters need.
RankPlan add_gathering(const RankPlan& row, const FlatLayout& layout, const std::vector<Stage>& stages);

// The units whose weights are gathered at one time in such a row, by index.
std::vector<std::pair<int, int>> units_gathered_together(const RankPlan& row, const FlatLayout& layout,
                                                         const std::vector<Stage>& stages);

// The units that have gradients in memory at one time where they are reduced after each micro-batch, by
// index, in a pipeline of so many stages. A weight whose other use is on another rank is no such unit.
std::vector<std::pair<int, int>> units_reduced_together(const RankPlan& row, const FlatLayout& layout,
                                                        const std::vector<Stage>& stages, int stage_count);

// How many versions of the weights must exist at once to run this row: 1 where the schedule is synchronous.
int weight_versions(const RankPlan& row);

}  // namespace trifold
