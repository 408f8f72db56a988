#include "comm/mpi_module.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

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

// How this process came to be, for messages.
std::string launch_text() {
  const std::optional<int> size = mpi_launch_size();
  if (!size) return "MPI was asked for";
  if (*size == 0) return "an MPI launcher started this process";
  return fmt::format("an MPI launcher started this process as one of {} rank{}", *size,
                     *size == 1 ? "" : "s");
}

constexpr const char* kAdvice =
    "Install an MPI library (Debian and Ubuntu: apt-get install mpich libmpich-dev) and build Trifold with "
    "TRIFOLD_MPI=ON, or name the module's folder in TRIFOLD_MODULE_PATH, or start the program without mpirun "
    "and let "
    "--ranks run the ranks as threads.";

void* open_module(std::span<const fs::path> folders) {
  std::string tried;
  for (const fs::path& folder : folders) {
    const fs::path file = folder / kMpiModuleFile;
    std::error_code error;
    if (!fs::exists(file, error)) {
      tried += fmt::format("\n  {}: there is no such file", file.string());
      continue;
    }
    // Global: parts that an MPI library loads later expect to find its symbols.
    if (void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE)) return module;
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason != nullptr ? reason : file.string() + ": cannot be loaded");
  }
  fail("{}, but its module {} cannot be loaded:{}\n{}", launch_text(), kMpiModuleFile, tried, kAdvice);
}

template <class Function>
Function* find(void* module, const char* name) {
  void* symbol = dlsym(module, name);
  check(symbol != nullptr, "the module {} has no function {}: it is not of this build of Trifold",
        kMpiModuleFile, name);
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

std::optional<int> mpi_launch_size() {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const auto number = number_in(size); number && *number > 0) return number;
  // srun numbers its tasks whatever they are; a batch script is task 0 of a step without a number.
  if (number_in("SLURM_PROCID") && number_in("SLURM_STEP_ID")) {
    for (const char* size : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
      if (const auto number = number_in(size); number && *number > 1) return number;
  }
  for (const char* rank : {"PMIX_RANK", "PMI_RANK"})
    if (number_in(rank)) return 0;
  return std::nullopt;
}

std::vector<fs::path> module_folders() {
  std::vector<fs::path> folders;
  if (const char* listed = std::getenv("TRIFOLD_MODULE_PATH")) {
    std::string_view rest = listed;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      if (!folder.empty()) folders.emplace_back(folder);
      rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    }
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path home = program.parent_path();
    for (const fs::path& folder : {home, home.parent_path() / "lib", home.parent_path() / "lib" / "trifold"})
      folders.push_back(folder);
  }
  return folders;
}

std::unique_ptr<Communicator> connect_mpi_from(std::span<const fs::path> folders,
                                               std::chrono::milliseconds timeout) {
  void* module = open_module(folders);
  const int64_t version = find<MpiModuleVersion>(module, "trifold_mpi_version")();
  check(version == kMpiModuleVersion,
        "the module {} is of another build of Trifold (version {}, not {}): build and install both together",
        kMpiModuleFile, version, kMpiModuleVersion);
  std::unique_ptr<Communicator> world(
      find<MpiModuleConnect>(module, "trifold_mpi_connect")(timeout.count(), &cpu_ops()));
  const int launched = mpi_launch_size().value_or(0);
  check(launched == 0 || launched == world->size(),
        "the launcher started {} ranks, but the MPI library of {} sees {}: they belong to different MPI "
        "installations. Use the mpirun of the MPI that the module was built with.",
        launched, kMpiModuleFile, world->size());
  return world;
}

std::unique_ptr<Communicator> connect_mpi(std::chrono::milliseconds timeout) {
  return connect_mpi_from(module_folders(), timeout);
}

}  // namespace trifold
