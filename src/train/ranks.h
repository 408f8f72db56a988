// Starting ranks: threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <chrono>

#include "comm/communicator.h"
#include "config/config.h"
#include "core/function_ref.h"

namespace trifold {

// Runs `rank_main` once for every rank that lives in this process and returns when all have returned. When
// the process was started by mpirun or srun it is one rank of that world; else config.ranks threads are
// started. The first error aborts the other ranks and is rethrown here with the rank it came from; BadInput
// is rethrown as it is.
void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

}  // namespace trifold
