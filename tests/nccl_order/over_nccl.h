// Runs of tests whose ranks, threads of this process, communicate over the pretended NCCL of this folder's module.
#pragma once

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "nccl_order/record.h"
#include "run/ranks.h"

namespace trifold::test {

// The most ranks of a run.
inline constexpr int kMostRanks = 64;

// A StartRanks (support/start_ranks.h): ranks of runs on a device have a device each and communicate over NCCL; other
// runs are started as always.
void start_over_nccl(const MeshConfig& mesh, FunctionRef<void(Communicator&)> rank_main);

// The record of the last run over NCCL.
OrderRecord take_record();

// Checks that record, of a run of this many ranks, and returns it: adds test failures for its problems. Nothing may
// deadlock even if every collective blocked the host.
OrderRecord expect_ordered(int ranks);

// A StartRanks: start_over_nccl, and expect_ordered of runs over NCCL.
void start_and_check_order(const MeshConfig& mesh, FunctionRef<void(Communicator&)> rank_main);

}  // namespace trifold::test
