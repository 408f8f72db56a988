// Starting ranks: threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/mpi_module.h"
#include "comm/shared_error.h"
#include "config/fields/config.h"
#include "core/function_ref.h"

namespace trifold {

class RunTerms;

// The ranks that live in this process, from the start of the program on: under an MPI launcher MPI starts
// before anything is checked, because ranks that were started wait in MPI_Init for one that gives up before.
class Ranks {
 public:
  // Threads, or what the launcher started. `last_words` are said where a rank does not come any more and
  // cannot be waited for, before the process ends with status 1; null: errors only, and threads are waited
  // for. Collective over an MPI launcher's processes, if there are any and `launched` is true.
  explicit Ranks(std::chrono::milliseconds timeout = kDefaultCommTimeout, LastWords last_words = nullptr,
                 bool launched = true);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Runs `checks` once a process, which may throw, and agrees on how they went: when they failed somewhere,
  // all processes throw one SharedError, BadInput where it is on each that failed. Collective over the
  // processes.
  void agree(FunctionRef<void()> checks);

  // Compares what the processes are to do (run/terms.h), as agree_on does; threads of one process share
  // it. Collective over the processes.
  void compare(const RunTerms& terms);

  // Runs `rank_main` once for every rank that lives in this process and returns when all have returned:
  // config.ranks threads, or under a launcher this process. The first error that is not the consequence of
  // another rank's aborts the other ranks and is rethrown here with the rank it came from; BadInput and a
  // SharedError are rethrown as they are, and so is an Agreed error, under MPI on the first rank; to tell it
  // once, it is of kind Aborted on the others.
  void run(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

 private:
  void run_process(const MeshConfig& config, std::chrono::milliseconds timeout,
                   FunctionRef<void(Communicator&)> rank_main);
  void run_threads(const MeshConfig& config, std::chrono::milliseconds timeout,
                   FunctionRef<void(Communicator&)> rank_main) const;

  LastWords last_words_;
  std::unique_ptr<Communicator> world_;  // of an MPI launcher; null without one
};

// The time-out that a configuration asks for.
std::chrono::milliseconds timeout_of(const MeshConfig& config);

// Ranks::run for programs that check nothing before, with time-outs that are errors.
void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator& world)> rank_main);

// Runs `work`; an error that not all ranks share aborts the other ranks before it goes on. For work that
// leaves messages under way: they use memory that the error's way up frees, so destructors wait for them, and
// without the abort the other ranks would let them wait for ever.
void abort_on_error(Communicator& world, FunctionRef<void()> work);

}  // namespace trifold
