// Passes: each takes a plan and returns it with more in it. From computation to a plan that can run:
//
//   Plan plan = make_schedule(...);
//   plan = add_reduce(std::move(plan), blocks, bucket_ends, tied);   // first, so that the order of messages
//   plan = add_communication(std::move(plan));                       // takes the tied reduction into account
//   check_plan(plan, shape);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/action.h"

namespace trifold {

// Adds a send and a receive wherever an output or a gradient passes from one rank to another. A plan that has
// a message already keeps its order: its author has put all of them.
//
// The rows are run with F = I = W = 1 and B = 2 (a block its share), messages taking no time. When a
// computation ends it is written to its row; then, at the same moment, its send is written to the same row
// and the receive to the row of the peer: behind what that rank has finished, before what it is computing. So
// all rows together have one total order in which a send and its receive are neighbours: ranks that do one
// thing at a time and wait in every send until it is received cannot deadlock. And a receive is posted before
// the computation under which its message arrives, so that the message need not wait for the end of it.
//
// Overlapped pairs are taken apart: run one after the other, the first can send its result before the second
// begins, and the pipeline is faster than with pairs that begin and end as one. `Together` keeps them, for a
// device that really runs the two at once. Throws Error(BadInput) naming what each rank waits for when the
// order of computation cannot run.
enum class Pairs : uint8_t { Apart, Together };
Plan add_communication(Plan plan, Pairs pairs = Pairs::Apart);

// Adds the reduction of gradients and the weight update.
// - On each stage the last weight gradient (W or B) before a Step, or at all where the plan has no Step, is
//   taken apart into blocks, and after a block that completes a bucket comes the reduction of that bucket, so
//   that it runs while the blocks before it are still in backward. `blocks[stage]` is the number of blocks of
//   the stage, `bucket_ends[stage]` lists, last block first, the blocks that complete a bucket. A stage that
//   has reductions already keeps them; one of the whole stage becomes one of each of its buckets, without
//   those that are reduced after every micro-batch.
// - Buckets in `each[stage]`, a part of bucket_ends[stage], are reduced after every micro-batch instead: each
//   weight gradient of the stage is taken apart, and a reduction that names the micro-batch follows the block
//   that completes such a bucket. Where both tied stages are on one rank, the one of the first stage's block
//   0 waits for the last stage's gradient of that micro-batch too.
// - `tied` names the two stages that share a weight, first and last. When different ranks run them, both get
//   a REDUCE_TIED: the first after the gradient of its block 0, before the reduction of that bucket; the last
//   immediately before its Step, after everything else in its row, because it waits there for the first. On
//   one rank that reduction comes behind the gradients of the last stage.
// - Where the plan has no Step of a stage it comes at the end of the row.
Plan add_reduce(Plan plan, std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends,
                std::optional<std::pair<int, int>> tied = std::nullopt,
                std::span<const std::vector<int>> each = {});

// A unit of weights that is gathered and given up, or whose gradients are reduced, as one: named by the block
// that completes it.
struct WeightUnit {
  int stage = 0;
  int block = 0;
  bool operator==(const WeightUnit&) const = default;
  bool operator<(const WeightUnit& other) const {
    return stage != other.stage ? stage < other.stage : block < other.block;
  }
};

// The units a block of a stage uses weights of: units[stage][block].
using UnitsOfBlocks = std::vector<std::vector<std::vector<WeightUnit>>>;

// For weights that are sharded over the data axis (ZeRO stage 3): takes F, B and I apart into blocks and puts
// an UNSHARD before a block that reads weights which are not there, a RESHARD behind the last block that
// reads them for a while. `ahead` units are gathered before they are needed, so that gathering runs behind
// computation. W reads no weights. Comes after the other passes. A row that has UNSHARD and RESHARD of whole
// stages keeps them: the units of a stage are there as long as the row says, and gathered again after a Step.
RankPlan add_residency(const RankPlan& row, const UnitsOfBlocks& units, int ahead);

// The row without its UNSHARD and RESHARD: for weights that are always there (ZeRO stages 0 to 2).
RankPlan without_residency(RankPlan row);

// The pairs of units that are gathered at one time in such a row.
std::vector<std::pair<WeightUnit, WeightUnit>> weights_together(const RankPlan& row);

// For gradients that are in memory for a time only: the pairs of units that are there at one time in this
// row. A unit comes with the first action that adds to its gradients and goes with its REDUCE_GRAD; the one
// that was reduced last is still under way until the next reduction, so that it runs behind computation.
// `units` names those that come and go; `last_stage` has the model's last block.
std::vector<std::pair<WeightUnit, WeightUnit>> gradients_together(const RankPlan& row,
                                                                  const UnitsOfBlocks& units, int last_stage);

}  // namespace trifold
