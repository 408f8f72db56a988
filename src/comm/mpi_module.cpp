#include "comm/mpi_module.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "comm/call.h"
#include "comm/rank_report.h"
#include "core/module.h"
#include "core/watchdog.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stopped != end || number < 0) return std::nullopt;
  return number;
}

// Describes how this process was started, for messages.
std::string launch_text() {
  const std::optional<int> size = mpi_launch_size();
  if (!size) return "MPI was asked for";
  if (*size == 0) return "an MPI launcher started this process";
  return fmt::format("an MPI launcher started this process as one of {} rank{}", *size,
                     *size == 1 ? "" : "s");
}

constexpr const char* kMpiAdvice =
    "Install an MPI library (Debian and Ubuntu: apt-get install mpich libmpich-dev) and build Trifold with "
    "TRIFOLD_MPI=ON, or name the module's folder in TRIFOLD_MODULE_PATH, or start the program without mpirun "
    "and let --ranks run the ranks as threads.";

// Global, because components that an MPI library loads later expect to find its symbols.
constexpr ModuleInfo kMpiModule{kMpiModuleFile, "trifold_mpi_version", kMpiModuleVersion, true};

void* load(std::span<const fs::path> folders) {
  std::string tried;
  void* module = open_module(folders, kMpiModule, tried);
  if (module == nullptr)
    fail("{}, but its module {} cannot be loaded:{}\n{}", launch_text(), kMpiModuleFile, tried, kMpiAdvice);
  return module;
}

template <class Function>
Function* in_mpi_module(void* module, const char* name) {
  return reinterpret_cast<Function*>(function_in(module, kMpiModuleFile, name));
}

// Ends the process if MPI does not start within the time-out: MPI_Init waits without limit for the others.
void end_late_start(std::chrono::milliseconds timeout, LastWords last_words) {
  last_words(
      fmt::format("rank {} ({}) gave up after {} in MPI_Init, where it waits for the other ranks to start: "
                  "ranks that do not print this message are missing",
                  mpi_launch_rank().value_or(0), this_process(), to_string(timeout))
          .c_str());
  _exit(1);
}

}  // namespace

std::optional<int> mpi_launch_size() {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const auto number = number_in(size); number && *number > 0) return number;
  // srun numbers its tasks whatever they are, but a batch script is task 0 of a step without a number.
  if (number_in("SLURM_PROCID") && number_in("SLURM_STEP_ID")) {
    for (const char* size : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
      if (const auto number = number_in(size); number && *number > 1) return number;
  }
  for (const char* rank : {"PMIX_RANK", "PMI_RANK"})
    if (number_in(rank)) return 0;
  return std::nullopt;
}

std::optional<int> mpi_launch_rank() {
  for (const char* rank :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const auto number = number_in(rank)) return number;
  return std::nullopt;
}

std::optional<int> mpi_launch_size_on_host() {
  for (const char* size : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"})
    if (const auto number = number_in(size); number && *number > 0) return number;
  return std::nullopt;
}

int ranks_to_share_host(int ranks) {
  return mpi_launch_size() ? std::min(ranks, mpi_launch_size_on_host().value_or(1)) : ranks;
}

std::unique_ptr<Communicator> connect_mpi_from(std::span<const fs::path> folders,
                                               std::chrono::milliseconds timeout, LastWords last_words) {
  void* module = load(folders);
  auto* connect = in_mpi_module<MpiModuleConnect>(module, "trifold_mpi_connect");
  const MpiModuleHost host{timeout.count(), &cpu_ops(), HostThread::here().get(), last_words};
  std::unique_ptr<Communicator> world;
  {
    std::optional<Watchdog> watch;
    if (last_words != nullptr) watch.emplace(timeout, [=] { end_late_start(timeout, last_words); });
    world.reset(connect(&host));
  }
  const int launched = mpi_launch_size().value_or(0);
  check(launched == 0 || launched == world->size(),
        "the launcher started {} ranks, but the MPI library of {} sees {}: they belong to different MPI "
        "installations. Use the mpirun of the MPI that the module was built with.",
        launched, kMpiModuleFile, world->size());
  return world;
}

std::unique_ptr<Communicator> connect_mpi(std::chrono::milliseconds timeout, LastWords last_words) {
  return connect_mpi_from(module_folders(), timeout, last_words);
}

MpiReport report_mpi() {
  MpiReport report{report_module(module_folders(), kMpiModule), ""};
  if (report.module.module != nullptr)
    report.library = in_mpi_module<MpiModuleLibrary>(report.module.module, "trifold_mpi_library")();
  return report;
}

}  // namespace trifold
