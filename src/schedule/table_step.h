// The training step of a model with embedding tables as a plan (action.h): generated, checked and simulated here.
//
// Stage 0 is the bottom MLP of the dense values, which runs while the tables' vectors are exchanged; stage 1 is the
// interaction of both, the top MLP and the loss. Each rank has both stages, and micro-batch 0 is its share of the
// batch. Without dense values the only stage, 0, is the top. Actions of tables, and actions of the whole step (LOSS,
// NORM, STEP), name stage 0. Every rank has the same row and works on three lines at once: it computes in the order of
// the row, while exchanges between ranks and the fetching of the next batch run in the background:
//
//   compute   LOOKUP | 0F0     | COLLECT, 1F0, 1I0 | 1W0, 0B0             | LOSS, UPDATE_ROWS, STEP
//   exchange         | vectors                     | gradients of vectors; sums of the stages' gradients
//   fetch     READ: the next batch
//
//   compute   LOOKUP | 0F0     | COLLECT, 1F0, 1I0 | 1W0, 0B0             | LOSS, UPDATE_ROWS, STEP
//   exchange         | vectors                     | gradients of vectors; sums of the stages' gradients
//   fetch     READ: the next batch
#pragma once

#include "core/function_ref.h"
#include "schedule/simulate.h"

namespace trifold {

struct TableStepShape {
  bool has_bottom = true;     // otherwise the top is the only stage
  bool clips = false;         // gradients are clipped by their norm over all stages
  bool fetches_ahead = true;  // READ overlaps with the step

  int stages() const { return has_bottom ? 2 : 1; }
  int top() const { return stages() - 1; }
};

RankPlan table_step(const TableStepShape& shape);
// The forward of a batch that is only scored.
RankPlan table_forward(const TableStepShape& shape);

// Throws Error(BadInput) that names the action and its position (counted from 1) unless each action of table_step
// occurs exactly once, and none precedes what it needs: no vector before the lookup, no gradient before the forward, no
// reduction before the gradients of its stage, and no change of a weight or row before the loss over all ranks, and the
// norm, are known to be finite.
void check_table_step(const RankPlan& row, const TableStepShape& shape);

// Seconds of an action on a rank; for COLLECT and RETURN the time of the exchange, for STEP including the reductions.
using TableStepCost = FunctionRef<double(const Action&)>;

// Simulates one rank of a run. The result has the three lines, in the order above, as its ranks; its makespan is the
// time per step in a run of many steps. Messages occupy the exchange line only, and computation waits for its inputs.
// Throws as check_table_step does.
Simulation simulate_table_step(const RankPlan& row, const TableStepShape& shape, TableStepCost cost);

}  // namespace trifold
