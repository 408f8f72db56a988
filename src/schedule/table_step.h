// The training step of a model with embedding tables as a plan (action.h): generated, checked and simulated.
//
// Stage 0 computes what the dense numbers become (a bottom MLP) while the vectors of the tables travel, stage
// 1 the interaction of both, the top MLP and the loss; each rank has both, and micro-batch 0 is its share of
// the batch. Without dense numbers there is one stage, 0, which is the top's. Actions of tables, and those of
// the whole step (LOSS, NORM, STEP), name stage 0. Every rank has the same row, and works on three lines at
// once: it computes in the order of the row; what travels between ranks and the next batch go on behind that:
//
//   compute   LOOKUP | 0F0     | COLLECT, 1F0, 1I0 | 1W0, 0B0             | LOSS, UPDATE_ROWS, STEP
//   exchange         | vectors                     | gradients of vectors; sums of the stages' gradients
//   fetch     READ: the next batch
#pragma once

#include "core/function_ref.h"
#include "schedule/simulate.h"

namespace trifold {

struct TableStepShape {
  bool has_bottom = true;     // else the top is the only stage
  bool clips = false;         // by the norm of the stages' gradients
  bool fetches_ahead = true;  // READ goes on behind the step

  int stages() const { return has_bottom ? 2 : 1; }
  int top() const { return stages() - 1; }
};

RankPlan table_step(const TableStepShape& shape);
// Of a batch that is only scored.
RankPlan table_forward(const TableStepShape& shape);

// Throws Error(BadInput) that names the action and its place (the first is action 1) unless each action of
// table_step is there once, and none before what it needs: no vector before the lookup, no gradient before
// the forward, no reduction before the gradients of its stage, and no weight or row changed before the loss
// of all ranks, and the norm, are known to be finite.
void check_table_step(const RankPlan& row, const TableStepShape& shape);

// Seconds that a rank needs for an action; for COLLECT and RETURN what travels needs, for STEP with the
// reductions.
using TableStepCost = FunctionRef<double(const Action&)>;

// What a rank of so many would do when. Ranks of the simulation are the three lines of one rank, in the order
// above; its makespan is the time of a step in a run of many. Messages take the exchange line only, and
// computation waits for what it needs. Throws as check_table_step does.
Simulation simulate_table_step(const RankPlan& row, const TableStepShape& shape, TableStepCost cost);

}  // namespace trifold
