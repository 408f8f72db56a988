// Inside check_plan: its two halves.
#pragma once

#include "schedule/check.h"

namespace trifold {

// The rules that one row at a time can show, and that every message has its partner. `rank_of` is
// stage_ranks(plan).
void check_rows(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of);

// The rules of order between ranks, of a plan that passed check_rows.
void check_message_order(const Plan& plan, const std::vector<int>& rank_of);
void check_runs(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of);

}  // namespace trifold
