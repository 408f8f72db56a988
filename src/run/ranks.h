// Starts ranks: threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/mpi_module.h"
#include "comm/shared_error.h"
#include "config/fields/config.h"
#include "core/function_ref.h"

namespace trifold {

class RunTerms;

// Prints a text for the user.
using Say = void (*)(const std::string& text);

// The ranks of this process, created at the start of the program: under an MPI launcher, MPI is initialised before
// anything is checked, because the other ranks would wait in MPI_Init for a rank that fails earlier.
class Ranks {
 public:
  // The ranks are threads, or the launcher's processes. `last_words` is called before the process ends with status 1
  // because a rank hangs and cannot be waited for; if null, errors are only thrown and threads are always waited for.
  // `say` gets what all ranks do when the user asks for it (run/flight/flight_run.h); if null, nobody can.
  // Collective over an MPI launcher's processes, if there are any and `launched` is true.
  explicit Ranks(std::chrono::milliseconds timeout = kDefaultCommTimeout, LastWords last_words = nullptr,
                 bool launched = true, Say say = nullptr);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Whether this process has the first rank.
  bool has_first() const;

  // Runs `checks`, which may throw, once per process and agrees on the outcome: if they failed on some process, all
  // processes throw one SharedError, which is BadInput if every failure was. Collective over the processes.
  void agree(FunctionRef<void()> checks);

  // Compares the terms of the processes (run/terms.h) with agree_on; threads of one process share them. Collective over
  // the processes.
  void compare(const RunTerms& terms);

  // Runs `rank_main` once for every rank of this process (config.ranks threads, or one under a launcher) and returns
  // when all have returned. The first error that is not a consequence of another rank's aborts the other ranks and is
  // rethrown here with the rank it came from. BadInput, a SharedError and an Agreed error are rethrown unchanged; under
  // MPI an Agreed error is Aborted on all ranks but the first, so that it is reported once.
  void run(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

 private:
  void run_process(const MeshConfig& config, std::chrono::milliseconds timeout,
                   FunctionRef<void(Communicator&)> rank_main);
  void run_threads(const MeshConfig& config, std::chrono::milliseconds timeout,
                   FunctionRef<void(Communicator&)> rank_main) const;

  LastWords last_words_;
  Say say_;
  std::unique_ptr<Communicator> world_;  // an MPI launcher's ranks; null without one
};

// The time-out of a configuration.
std::chrono::milliseconds timeout_of(const MeshConfig& config);

// Ranks::run for programs that need no checks before it; time-outs are errors.
void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

// Runs `work`; an error that not all ranks share aborts the other ranks before it is rethrown. For work that leaves
// messages in flight: unwinding frees the memory that they use, so destructors wait for them, and without the abort
// would wait for the other ranks for ever.
void abort_on_error(Communicator& world, FunctionRef<void()> work);

}  // namespace trifold
