// MPI, loaded on demand: the program does not link MPI, so it starts on machines without it.
//
// Everything that calls MPI is in the module trifold_mpi.so (src/comm/mpi), which is searched for in
// module_folders() (core/module.h) and stays loaded until the process ends. The module has its own copy of
// the core room; the program can catch Errors thrown in the module, because both types have the same name.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "core/host_thread.h"
#include "core/module.h"

namespace trifold {

// Prints why the process ends, when an error can no longer be thrown; `why` is "" if another rank prints it. Called
// from any thread. The caller then ends the process.
using LastWords = void (*)(const char* why);

// The number of ranks that an MPI launcher (mpirun, mpiexec, srun) started, according to the environment;
// nothing if no launcher started this process, 0 if the launcher does not give the number.
std::optional<int> mpi_launch_size();
// The rank of this process, if the launcher gives it.
std::optional<int> mpi_launch_rank();

// The number of ranks that the launcher started on this host, if it gives it.
std::optional<int> mpi_launch_size_on_host();

// How many of `ranks` ranks will share the memory of this host once they are started: all if they are threads, 1 under
// a launcher that does not report the number.
int ranks_to_share_host(int ranks);

// The world communicator of the MPI launcher for this process. Collective over all processes of the launcher;
// every communicator split from it must be destroyed before it. Call it once in a program (tests create
// worlds one after another). Throws an Error that says what to do if the module cannot be loaded or is of
// another build, or if the launcher belongs to another MPI library.
//
// With `last_words`, a time-out calls it and ends the whole job (MPI_Abort) instead of throwing an Error,
// because missing ranks could not be joined. The same happens if a process does not end within some seconds
// after the world was aborted, and if its peers do not start MPI within the time-out.
std::unique_ptr<Communicator> connect_mpi(std::chrono::milliseconds timeout = kDefaultCommTimeout,
                                          LastWords last_words = nullptr);

// connect_mpi, searching for the module in `folders` only.
std::unique_ptr<Communicator> connect_mpi_from(std::span<const std::filesystem::path> folders,
                                               std::chrono::milliseconds timeout,
                                               LastWords last_words = nullptr);

// The MPI module of this installation, for a report. MPI is not started.
struct MpiReport {
  ModuleReport module;
  std::string library;  // what its MPI library calls itself (MPI_Get_library_version); empty unless Usable
};
MpiReport report_mpi();

// The interface of the module, with C names. A change of any type in it must change the version.
constexpr const char* kMpiModuleFile = "trifold_mpi.so";
constexpr int64_t kMpiModuleVersion = 5 + 1000 * int64_t{sizeof(Stream)} +
                                      1'000'000 * int64_t{sizeof(Tensor)} +
                                      1'000'000'000 * int64_t{sizeof(OpTable)};
using MpiModuleVersion = int64_t();
using MpiModuleLibrary = const char*();  // the text lives until the process ends
struct MpiModuleHost {                   // passed by the program
  int64_t timeout_ms;
  const OpTable* ops;
  HostThread* thread;  // the thread that runs the rank: the caller
  LastWords last_words;
};
using MpiModuleConnect = Communicator*(const MpiModuleHost* host);

}  // namespace trifold
