// The common frame of the commands that train (`pretrain`, `finetune`, `recommend`).
#pragma once

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "launch/progress.h"
#include "run/job.h"
#include "run/ranks.h"

namespace trifold::launch {

// Opens what `log` asks a run's records to be written to, in the process of the first rank; the monitors of other
// processes, and of jobs with nothing left to do, have no sinks. BadInput on all ranks if that is not possible.
// Collective over the processes.
Monitor open_monitor(Ranks& ranks, const LogConfig& log, const RunJob& job);

// Runs `train` on the ranks of `mesh`, unless nothing is left to do, and reports how it ended. `train` receives the
// result of catch_signals(), and must return the same value on every rank. Returns the command's exit status.
int train_on_ranks(Ranks& ranks, RunJob& job, const MeshConfig& mesh, const CheckpointConfig& checkpoint,
                   ProgressLines& progress,
                   FunctionRef<RunEnd(Communicator& world, const std::atomic<int>& signal)> train);

}  // namespace trifold::launch
