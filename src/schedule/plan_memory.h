// The memory of a row, which depends on the order of its actions but not on their times; internal to simulate.
#pragma once

#include "schedule/simulate.h"

namespace trifold {

struct RowMemory {
  int versions = 1;        // most weight versions of a stage at once
  int peak_in_flight = 0;  // micro-batches in flight, summed over stages
  size_t fixed = 0;        // bytes of weights and state
  size_t peak = 0;         // `fixed` and the most that micro-batches need at once
  size_t peak_at = 0;      // the action of the row at which the peak is first reached
  int in_flight_there = 0;
};

RowMemory row_memory(const RankPlan& row, const PlanShape& shape, const CostModel& cost);

// Throws if a row needs more than `limit` bytes; `begins[rank]` is the time at which the rank's action peak_at begins.
void check_memory(const Plan& plan, const std::vector<RowMemory>& rows, const std::vector<double>& begins,
                  size_t limit);

}  // namespace trifold
