// Passes: each takes a plan and returns it with more actions. From computation to an executable plan:
//
//   Plan plan = make_schedule(...);
//   plan = add_lookups(std::move(plan), shape);
//   plan = drop_backward(std::move(plan), shape.without_backward);
//   plan = add_reduce(std::move(plan), blocks, bucket_ends, tied);   // first, so that the order of messages
//   plan = add_communication(std::move(plan));                       // takes the tied reduction into account
//   plan = add_offload(std::move(plan), blocks, offloaded);
//   check_plan(plan, shape);
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "schedule/action.h"
#include "schedule/check.h"

namespace trifold {

// Puts a lookup stage in front of the others for each rank of shape.lookups, in that order. It looks up the tokens
// whose table rows the rank holds, adds the sum received from the stage before, and passes the sum on ("Balancing
// pipeline parallelism with vocabulary parallelism", arXiv 2411.05288, input layer; docs/decisions/0031). `plan` has
// the other stages, numbered from 0, and computation only; its stages are renumbered behind the lookups. `shape` is the
// shape of the result.
//
// Lookups take almost no time, but ranks compute in order and must not wait for each other's lookups. The rows are
// therefore simulated as in add_communication, without messages. The forward of a lookup is placed the time of two
// forwards, which no computation exceeds, before the next stage needs its result; its backward as long after the next
// stage's, and after the weight gradients of the same micro-batch on the stages that share its weight.
Plan add_lookups(Plan plan, const PlanShape& shape);

// Removes the backward of the first `stages` stages, which have no trained parameter: their I, W, B and reductions, and
// the messages that carry gradients to them. A pair that loses its backward is split.
Plan drop_backward(Plan plan, int stages);

// What add_communication does with overlapped pairs.
enum class Pairs : uint8_t { Apart, Together };

// Adds a send and a receive wherever an output or a gradient passes from one rank to another. A plan that already
// contains a message is assumed to have all of them, and keeps its order.
//
// The rows are simulated with F = I = W = 1 and B = 2 (a block takes its share), and messages of 1/64. When a
// computation ends it is written to its row; at the same time its send is written to the same row and the receive to
// the row of the peer, after the actions that rank has finished and before its current computation. (If messages took
// no time, ranks would compute just in time, and receives would be written between two computations of which the later
// one waits for them.) All rows together thus have one total order in which a send and its receive are adjacent, so
// ranks that do one thing at a time and block in every send until it is received cannot deadlock. A receive is posted
// before the computation during which its message arrives, so the message need not wait for that computation to end.
//
// `Apart` splits overlapped pairs: the first action can then send its result before the second begins, which makes the
// pipeline faster than pairs that begin and end together. `Together` keeps them, for halves that alternate or a device
// that runs both at once. Throws Error(BadInput) that says what each rank waits for if the order of computation cannot
// run.
//
// The first `lookups` stages take no time (add_lookups). A rank with nothing else to do computes their forwards, and those
// of first stages without a backward (drop_backward) if each rank has one stage, one micro-batch ahead of the next stage:
// stages that nothing holds back would send all their outputs at once; they would delay other messages and fill the memory
// of the rank that receives them. Where ranks have several stages, the order of their rows holds the first ones back.
Plan add_communication(Plan plan, Pairs pairs = Pairs::Apart, int lookups = 0);

// Adds the reduction of gradients and the weight update:
// - On each stage, the last weight gradient (W or B) before a Step, or of the plan if it has no Step, is split
//   into blocks. A block that completes a bucket is followed by the reduction of that bucket, which then
//   overlaps with the backward of earlier blocks. `blocks[stage]` is the number of blocks of the stage,
//   `bucket_ends[stage]` lists, last block first, the blocks that complete a bucket. A stage that already has
//   reductions keeps them; a reduction of the whole stage becomes one for each of its buckets, except those
//   that are reduced after every micro-batch.
// - Buckets in `each[stage]`, a subset of bucket_ends[stage], are reduced after every micro-batch instead: each
//   weight gradient of the stage is split, and the block that completes such a bucket is followed by a
//   reduction that names the micro-batch. If a stage on the same rank shares the weight of block 0, the reduction of
//   block 0 also waits for that stage's gradient of that micro-batch.
// - `tied` names the stages that share a weight with an earlier one. If stages on other ranks share the first stage's
//   weight, each of these ranks and the first stage's rank get a REDUCE_TIED: on the first stage after the gradient of
//   its block 0 and before the reduction of that bucket; on the other ranks at their last tied stage, immediately
//   before its Step and after everything else in the row, because there they wait for the first stage. The reduction of
//   that bucket also follows the gradients of the stages on its own rank that share the weight.
// - A stage without a backward (drop_backward) has no reductions.
// - If the plan has no Step for a stage, it is added at the end of the row.
Plan add_reduce(Plan plan, std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends,
                const std::vector<TiedStage>& tied = {}, std::span<const std::vector<int>> each = {});

// Off-loads the activations of blocks [not_kept[stage], offloaded[stage]) of each stage, not of its last block; without
// `not_kept` from the first on. F, B, I and W of these stages are split into blocks. An OFFLOAD follows the forward of the next block, which reads the
// block's output; a FETCH is placed `ahead` computations before the backward of that block, so that it overlaps with
// them. Blocks that would be fetched before anything else is computed stay in memory. A row that already has OFFLOADs
// keeps them, and its order.
Plan add_offload(Plan plan, std::span<const int> blocks, std::span<const int> offloaded, int ahead = 1,
                 std::span<const int> not_kept = {});

// A unit of weights that is gathered and released, or whose gradients are reduced, as a whole; named by the
// block that completes it.
struct WeightUnit {
  int stage = 0;
  int block = 0;
  bool operator==(const WeightUnit&) const = default;
  bool operator<(const WeightUnit& other) const {
    return stage != other.stage ? stage < other.stage : block < other.block;
  }
};

// A block of a stage.
struct StageBlockIndex {
  int stage = 0;
  int block = 0;
  bool operator==(const StageBlockIndex&) const = default;
};

// The units whose weights a block of a stage uses: units[stage][block].
using UnitsOfBlocks = std::vector<std::vector<std::vector<WeightUnit>>>;

// For weights that are sharded over the data axis (ZeRO stage 3): splits F, B and I into blocks, and puts an UNSHARD
// before a block that reads weights which are not gathered and a RESHARD after the last block that reads them for a
// while. Units are gathered `ahead` units early, so that gathering overlaps with computation. B and I read the units in
// `read_by_b`, which lacks the units of blocks without a backward. W reads only the units in `read_by_w`, the weights of
// blocks that recompute something in W, and is split on stages that have some; otherwise W reads no weights. Must be the last pass. If the row already has UNSHARD and RESHARD of whole stages, they decide: the
// units of a stage are gathered for as long as the row says, and again after a Step.
RankPlan add_residency(const RankPlan& row, const UnitsOfBlocks& units, int ahead,
                       const UnitsOfBlocks& read_by_w, const UnitsOfBlocks& read_by_b);
inline RankPlan add_residency(const RankPlan& row, const UnitsOfBlocks& units, int ahead,
                              const UnitsOfBlocks& read_by_w = {}) {
  return add_residency(row, units, ahead, read_by_w, units);
}

// The row without its UNSHARD and RESHARD: for weights that are always resident (ZeRO stages 0 to 2).
RankPlan without_residency(RankPlan row);

// The pairs of units that are gathered at the same time in a row of add_residency.
std::vector<std::pair<WeightUnit, WeightUnit>> weights_together(const RankPlan& row);

// For transient gradients: the pairs of units whose gradients are in memory at the same time in this row. A unit's
// memory is taken by the first action that adds to its gradients and released after its REDUCE_GRAD; the unit reduced
// last counts as in memory until the next reduction, so that reductions overlap with computation. `units` lists the
// transient units; `adds` says whether an action of a kind adds to a block's gradients, by the rule of the executor
// (StageBlock::adds_to_gradients).
std::vector<std::pair<WeightUnit, WeightUnit>> gradients_together(
    const RankPlan& row, const UnitsOfBlocks& units, FunctionRef<bool(ActionKind, StageBlockIndex)> adds);

}  // namespace trifold
