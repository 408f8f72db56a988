// Inside simulate: what a row needs of memory, which depends on its order but not on time.
#pragma once

#include "schedule/simulate.h"

namespace trifold {

struct RowMemory {
  int versions = 1;        // the most of one stage
  int peak_in_flight = 0;  // micro-batches times stages
  size_t fixed = 0;        // bytes of weights and state
  size_t peak = 0;         // fixed and the most that micro-batches need at once
  size_t peak_at = 0;      // the action of the row at which that is reached first
  int in_flight_there = 0;
};

RowMemory row_memory(const RankPlan& row, const PlanShape& shape, const CostModel& cost);

// Throws when a row needs more than the limit; `begins[rank]` is when its action peak_at begins.
void check_memory(const Plan& plan, const std::vector<RowMemory>& rows, const std::vector<double>& begins,
                  size_t limit);

}  // namespace trifold
