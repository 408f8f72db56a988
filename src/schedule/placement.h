// Which rank runs which stage of a plan.
#pragma once

#include <vector>

#include "schedule/action.h"

namespace trifold {

// [stage] the rank whose row names the stage. Stages are counted from the largest number in the plan. Throws
// Error(BadInput) naming rank, position and action when a stage appears on two ranks or on none.
std::vector<int> stage_ranks(const Plan& plan);

// "1B3 (rank 0, action 17)": where an action stands, the first of a row being action 1.
std::string where(const Plan& plan, size_t rank, size_t index);

}  // namespace trifold
