// The two parts of check_plan; internal.
#pragma once

#include "schedule/check.h"

namespace trifold {

// Checks the rules for single rows, and that every message has its counterpart. `rank_of` is stage_ranks(plan).
void check_rows(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of);

// Check the rules of order between ranks, for a plan that has passed check_rows: the order of messages, and that the
// plan runs to its end.
void check_message_order(const Plan& plan, const std::vector<int>& rank_of);
void check_runs(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of);

}  // namespace trifold
