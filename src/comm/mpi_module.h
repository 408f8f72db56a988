// MPI, loaded on demand: the program itself does not link MPI, so it starts on machines that have none.
//
// Everything that calls MPI is in the module trifold_mpi.so (src/comm/mpi), which is looked for in
// module_folders() (comm/module.h). Once loaded it stays until the process ends. The module holds its own
// copy of the core room; Errors thrown inside it are caught here as usual, because both are the same type by
// name.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "comm/communicator.h"
#include "core/host_thread.h"

namespace trifold {

// Tells people why the process ends, where no error can do so any more; "" where another rank tells it.
// Called from any thread. The caller ends the process.
using LastWords = void (*)(const char* why);

// How many ranks an MPI launcher (mpirun, mpiexec, srun) says it started, found from the environment; nothing
// when this process was not started by one, 0 when the launcher does not say how many.
std::optional<int> mpi_launch_size();
// Which of them this process is, where the launcher says so.
std::optional<int> mpi_launch_rank();

// How many of them the launcher says it started on this host; nothing where it does not say.
std::optional<int> mpi_launch_size_on_host();

// The world of the MPI launcher as this process, one of its ranks, sees it. Collective over all its
// processes; every communicator split from it must be gone before it is. To be called once in a program
// (tests make worlds one after another). Throws an Error that says what to do when the module cannot be
// loaded or is not of this build, or when the launcher and the MPI library do not belong together.
//
// With `last_words` a wait that takes too long ends the whole job (MPI_Abort) once these are said, instead of
// an Error: the ranks that do not come could not be joined. So does a process that cannot end in its own way
// some seconds after the world was aborted, and one whose peers do not start MPI within the time-out.
std::unique_ptr<Communicator> connect_mpi(std::chrono::milliseconds timeout = kDefaultCommTimeout,
                                          LastWords last_words = nullptr);

// connect_mpi with the module looked for in `folders` only.
std::unique_ptr<Communicator> connect_mpi_from(std::span<const std::filesystem::path> folders,
                                               std::chrono::milliseconds timeout,
                                               LastWords last_words = nullptr);

// What the module exports, with C names. A change of any type that crosses the border changes the version.
constexpr const char* kMpiModuleFile = "trifold_mpi.so";
constexpr int64_t kMpiModuleVersion = 3 + 1000 * int64_t{sizeof(Stream)} +
                                      1'000'000 * int64_t{sizeof(Tensor)} +
                                      1'000'000'000 * int64_t{sizeof(OpTable)};
using MpiModuleVersion = int64_t();
struct MpiModuleHost {  // what the program gives
  int64_t timeout_ms;
  const OpTable* ops;
  HostThread* thread;  // the calling one, which runs the rank
  LastWords last_words;
};
using MpiModuleConnect = Communicator*(const MpiModuleHost* host);

}  // namespace trifold
