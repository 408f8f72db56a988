// The training step of a model with embedding tables as a plan (action.h): generated, checked and simulated.
//
// Stage 0 processes the dense numbers (a bottom MLP) while the vectors of the tables are exchanged; stage 1
// is the interaction of both, the top MLP and the loss. Each rank has both, and micro-batch 0 is its share of
// the batch. Without dense numbers the only stage, 0, is the top. Actions of tables, and those of the whole
// step (LOSS, NORM, STEP), name stage 0. Every rank has the same row and works on three lines at once: it
// computes in the order of the row, while exchanges between ranks and the fetching of the next batch run in
// the background:
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
  bool clips = false;         // by the norm of the stages' gradients
  bool fetches_ahead = true;  // READ overlaps with the step

  int stages() const { return has_bottom ? 2 : 1; }
  int top() const { return stages() - 1; }
};

RankPlan table_step(const TableStepShape& shape);
// The forward of a batch that is only scored.
RankPlan table_forward(const TableStepShape& shape);

// Throws Error(BadInput) that names the action and its position (counted from 1) unless each action of
// table_step is there exactly once, and none precedes what it needs: no vector before the lookup, no gradient
// before the forward, no reduction before the gradients of its stage, and no weight or row changed before the
// loss over all ranks, and the norm, are known to be finite.
void check_table_step(const RankPlan& row, const TableStepShape& shape);

// Seconds that a rank needs for an action; for COLLECT and RETURN the time of the exchange, for STEP with the
// reductions.
using TableStepCost = FunctionRef<double(const Action&)>;

// Simulates one rank of a run. The ranks of the result are the three lines, in the order above; its makespan
// is the time of a step in a run of many. Messages occupy the exchange line only, and computation waits for
// what it needs. Throws as check_table_step does.
Simulation simulate_table_step(const RankPlan& row, const TableStepShape& shape, TableStepCost cost);

}  // namespace trifold
