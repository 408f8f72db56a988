// Generators of plans: the order of computation on each rank. A plan made here holds computation only (and Steps if the
// schedule is asynchronous); passes.h adds the rest.
//
// Terms: p ranks, r a rank, m micro-batches, v chunks per rank; stage numbers run along the model. A chunk is one of
// the stages of a rank, so a rank with v chunks runs v stages. config/fields/schedule.h cites the papers;
// tests/unit/schedule_schedules_test.cpp checks the idle time and the memory of each schedule.
#pragma once

#include <vector>

#include "config/fields/schedule.h"
#include "schedule/action.h"

namespace trifold {

// The stage that is chunk `chunk` of rank `rank`. Looped placement: chunk * p + r. The placement of zb-v and dualpipe-v
// is a V, down the ranks and up again: chunk 0 is stage r, chunk 1 is stage 2p - 1 - r.
int stage_of(Schedule schedule, int ranks, int chunk, int rank);

// The plan of one global batch of `micros` micro-batches on `ranks` ranks with `chunks` chunks each, for a synchronous
// schedule; `auto` assumes stages of equal cost. Throws Error(BadInput) with the text of schedule_problem if the
// schedule cannot run with these sizes, and Error for an asynchronous schedule.
Plan make_schedule(Schedule schedule, int ranks, int chunks, int micros);

// The plan of a window of `batches` global batches for pipedream and pipedream-2bw. Micro-batches are
// numbered through the window, 0 .. micros_per_batch * batches - 1. The order is that of 1F1B and does not
// drain between batches, only at the end of the window. The Step of a stage follows its last backward of each
// batch.
// - pipedream: a forward uses the newest weights its stage has.
// - pipedream-2bw: batch t uses version max(0, t - 1) on every stage, so the update is
//   W(t+1) = W(t) - rate * gradient(W(t-1)).
// Throws Error(BadInput) with schedule_problem's text, and Error for a synchronous schedule.
Plan make_async(Schedule schedule, int ranks, int micros_per_batch, int batches);

// Forward only, for evaluation, with the placement of `schedule`. The chunk changes after every p micro-batches, so
// that few outputs wait for their next chunk.
Plan forward_only(Schedule schedule, int ranks, int chunks, int micros);

// One stage, each micro-batch forward and backward in turn: gradient accumulation with one micro-batch in
// flight.
Plan one_stage(int micros);

}  // namespace trifold
