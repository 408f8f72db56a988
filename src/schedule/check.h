// Checks that a plan is complete, ordered correctly and free of deadlocks.
#pragma once

#include <vector>

#include "schedule/action.h"

namespace trifold {

// The training step for which a plan is made.
struct PlanShape {
  int stages = 1;
  int micros = 1;                    // micro-batches of the whole plan, all its global batches together
  std::vector<int> blocks = {};      // [stage] its number of blocks; empty: one block each
  bool forward_only = false;         // evaluation: forwards and their messages, no Step
  std::vector<TiedStage> tied = {};  // stages that share a weight with an earlier one, ascending
  std::vector<int> lookups = {};     // [lookup stage] its pipeline rank (add_lookups)
  // [stage] The blocks that complete a gradient bucket; if given, exactly these must be reduced before a Step.
  std::vector<std::vector<int>> bucket_ends = {};
  // [stage] The blocks of bucket_ends whose buckets are reduced after every micro-batch; empty: none.
  std::vector<std::vector<int>> each = {};
  // The number of first stages without a trained parameter, not all. They run no backward, and no gradient is sent to
  // them.
  int without_backward = 0;
  // [stage] The number of first blocks, not all, whose activations may be off-loaded; empty: none.
  std::vector<int> offloaded = {};
  std::vector<int> not_kept =
      {};  // [stage] the first of these blocks that keep nothing, since no backward reads it
  bool operator==(const PlanShape&) const = default;
};

// Throws Error(BadInput), naming the action, its rank and its position in the row (counted from 1), unless
// - every stage is on one rank and every rank has a stage;
// - each micro-batch runs forward once on each stage, as a whole or block by block from the first, and then backward
//   once, as B or as I and W, as a whole or block by block from the last; all with the weight version of the forward,
//   which must exist by then. Stages without a backward run only the forward;
// - every input is available before it is used: computed on the same rank, or received. Tensors that another
//   rank needs are sent once and received once; messages between two ranks in one direction are received in
//   the order in which they are sent;
// - reductions follow the last gradient of their block, the tied reduction precedes its bucket's reduction, and Step
//   follows all of them; a reduction that names a micro-batch follows the gradient of that micro-batch; nothing is
//   computed on a stage after its last Step. If a stage has several Steps, every stage has the same micro-batches
//   before each of them;
// - OFFLOAD names a block whose activations may be off-loaded and comes after the forward of the next block,
//   which reads its output, at most once for a micro-batch; FETCH comes after OFFLOAD, and before the backward
//   of either block;
// - in a plan that has an UNSHARD, F, B and I come between an UNSHARD and a RESHARD of their stage;
// - it runs to its end on ranks that do one thing at a time: a rank continues after its messages only when the
//   peers have taken part in all of them, and after a REDUCE_TIED when the other ranks have reached theirs. The error
//   says what each rank waits for. The executor waits for less (computation waits only for its inputs, and the two
//   directions of messages are independent), so a plan that passes cannot deadlock there.
void check_plan(const Plan& plan, const PlanShape& shape);

}  // namespace trifold
