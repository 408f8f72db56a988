// The ranks of a plan's stages.
#pragma once

#include <vector>

#include "schedule/action.h"

namespace trifold {

// [stage] The rank whose row names the stage. The largest stage number in the plan gives the number of stages. Throws
// Error(BadInput) naming rank, position and action if a stage appears on two ranks or on none.
std::vector<int> stage_ranks(const Plan& plan);

// The ranks that take part in the plan's REDUCE_TIEDs, ascending.
std::vector<size_t> tied_ranks(const Plan& plan);

// "1B3 (rank 0, action 17)": the position of an action, counted from 1 in each row.
std::string where(const Plan& plan, size_t rank, size_t index);

}  // namespace trifold
