// Generators of plans and the passes that complete them. A generator orders computation only; passes add the
// rest.
#pragma once

#include <span>

#include "pipeline/action.h"

namespace trifold {

// One stage, every micro-batch forward and backward in turn: gradient accumulation with one micro-batch in
// flight.
Plan one_stage(int micros);

// Appends the reduction of gradients and the weight update. The backward of the last micro-batch on each
// stage is taken apart into blocks, and after a block that completes a bucket comes the reduction of that
// bucket, so that it runs while the blocks before it are still in backward. `bucket_ends[stage]` lists, last
// block first, the blocks that complete a bucket; `blocks[stage]` is the number of blocks of the stage.
Plan add_reduce(Plan plan, std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends);

// Throws an Error that names the action unless the plan is complete and in order: each micro-batch goes
// forward once on each stage, then backward once (B, or I then W; the whole stage or each of its blocks once,
// last first), every reduction follows the last gradient of its block, and Step comes last.
void check_plan(const Plan& plan, int micros, std::span<const int> blocks);

}  // namespace trifold
