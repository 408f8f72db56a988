// Starting ranks: threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <chrono>

#include "comm/communicator.h"
#include "config/config.h"
#include "core/function_ref.h"

namespace trifold {

// Runs `rank_main` once for every rank that lives in this process and returns when all have returned. When
// the process was started by mpirun or srun it is one rank of that world; else config.ranks threads are
// started. The first error that is not the consequence of another rank's aborts the other ranks and is
// rethrown here with the rank it came from; BadInput is rethrown as it is, and so is an Agreed error, under
// MPI on the first rank; to tell it once, it is of kind Aborted on the others.
void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

// Runs `work`; an error that is not Agreed aborts the other ranks before it goes on. For work that leaves
// messages under way: they use memory that the error's way up frees, so destructors wait for them, and
// without the abort the other ranks would let them wait for ever.
void abort_on_error(Communicator& world, FunctionRef<void()> work);

}  // namespace trifold
