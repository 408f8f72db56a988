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

namespace trifold {

// How many ranks an MPI launcher (mpirun, mpiexec, srun) says it started, found from the environment; nothing
// when this process was not started by one, 0 when the launcher does not say how many.
std::optional<int> mpi_launch_size();

// The world of the MPI launcher as this process, one of its ranks, sees it. Collective over all its
// processes; every communicator split from it must be gone before it is. To be called once in a program
// (tests make worlds one after another). Throws an Error that says what to do when the module cannot be
// loaded or is not of this build, or when the launcher and the MPI library do not belong together.
std::unique_ptr<Communicator> connect_mpi(std::chrono::milliseconds timeout = kDefaultCommTimeout);

// connect_mpi with the module looked for in `folders` only.
std::unique_ptr<Communicator> connect_mpi_from(std::span<const std::filesystem::path> folders,
                                               std::chrono::milliseconds timeout);

// What the module exports, with C names. A change of any type that crosses the border changes the version.
constexpr const char* kMpiModuleFile = "trifold_mpi.so";
constexpr int64_t kMpiModuleVersion = 1 + 1000 * int64_t{sizeof(Stream)} +
                                      1'000'000 * int64_t{sizeof(Tensor)} +
                                      1'000'000'000 * int64_t{sizeof(OpTable)};
using MpiModuleVersion = int64_t();
using MpiModuleConnect = Communicator*(int64_t timeout_ms, const OpTable* ops);

}  // namespace trifold
