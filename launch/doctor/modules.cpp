#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "comm/cuda_module.h"
#include "comm/mpi_module.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/function_ref.h"
#include "launch/doctor/checks.h"
#include "preprocess/parquet_library.h"
#include "tokenize/chat/chat_template.h"
#include "tokenize/chat/jinja_module.h"

namespace trifold::launch {

namespace {

using State = Check::State;
using Json = nlohmann::ordered_json;

constexpr unsigned kLoadSeconds = 60;

// Runs `look`, which loads the module `file`, in a child process, because a damaged library may end its process or never
// return. Throws an Error that says how the child ended unless it exited.
void try_in_child(const char* file, FunctionRef<void()> look) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (const int number : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGALRM}) std::signal(number, SIG_DFL);
    alarm(kLoadSeconds);
    try {
      look();
    } catch (...) {  // the caller runs `look` as well
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSIGNALED(status)) return;
  if (WTERMSIG(status) == SIGALRM) fail("loading {} takes more than {} s", file, kLoadSeconds);
  fail("loading {} ends the process with signal {} ({})", file, WTERMSIG(status),
       strsignal(WTERMSIG(status)));
}

// Sets the state of a check from its module's and says what is wrong; returns whether the module can be used.
bool take_module(Check& check, const ModuleReport& module, const char* file, const char* get,
                 const char* repair) {
  check.values["module"] = module.file.empty() ? Json() : Json(module.file.string());
  switch (module.state) {
    case ModuleReport::State::Usable:
      return true;
    case ModuleReport::State::Absent:
      check.state = State::Absent;
      check.found = fmt::format("this installation has no module {}", file);
      check.advice = get;
      return false;
    case ModuleReport::State::NeedsLibrary:
      check.state = State::Absent;
      check.found =
          fmt::format("{} needs a library that is not installed: {}", module.file.string(), module.problem);
      check.advice = repair;
      return false;
    case ModuleReport::State::Broken:
      break;
  }
  check.state = State::Broken;
  check.found = module.problem.find(module.file.string()) == std::string::npos
                    ? fmt::format("{}: {}", module.file.string(), module.problem)
                    : module.problem;
  check.advice = repair;
  return false;
}

// The families of MPI libraries whose launchers cannot start each other's programs.
enum class MpiFamily { Unknown, Mpich, OpenMpi };

bool has_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

MpiFamily family_of_library(const std::string& library) {
  if (has_any(library, {"Open MPI"})) return MpiFamily::OpenMpi;
  if (has_any(library, {"MPICH", "Intel(R) MPI", "MVAPICH"})) return MpiFamily::Mpich;
  return MpiFamily::Unknown;
}

// By the name of the program that the command is a link to.
MpiFamily family_of_launcher(const std::string& command) {
  std::error_code error;
  const std::string name = std::filesystem::canonical(command, error).filename().string();
  if (has_any(name, {"orterun", "prterun", "openmpi"})) return MpiFamily::OpenMpi;
  if (has_any(name, {"hydra", "mpich"})) return MpiFamily::Mpich;
  return MpiFamily::Unknown;
}

// "MPICH Version:\t4.0.2\n..." -> "MPICH 4.0.2"; "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4".
std::string short_library_name(std::string library) {
  library.resize(std::min(library.find_first_of("\n,"), library.size()));
  constexpr std::string_view kVersion = " Version:";
  if (const size_t at = library.find(kVersion); at != std::string::npos) library.erase(at, kVersion.size());
  std::replace(library.begin(), library.end(), '\t', ' ');
  return library;
}

void check_mpi_module(Check& check) {
  const std::string mpiexec = command_in_path("mpiexec");
  const std::optional<int> ranks = mpi_launch_size(), rank = mpi_launch_rank();
  check.values = {{"module", nullptr},
                  {"library", nullptr},
                  {"mpiexec", mpiexec.empty() ? Json() : Json(mpiexec)},
                  {"rank", ranks && rank ? Json(*rank) : Json()},
                  {"ranks", ranks.value_or(0) > 0 ? Json(*ranks) : Json()}};
  try_in_child(kMpiModuleFile, [] { report_mpi(); });
  const MpiReport report = report_mpi();
  if (!take_module(
          check, report.module, kMpiModuleFile,
          "apt-get install mpich libmpich-dev (or tools/install_dependencies.sh), then build again: "
          "docs/install.md; without it ranks are threads: --ranks",
          "install the MPI that the module was built with, or build the module again: docs/install.md"))
    return;
  const std::string library = short_library_name(report.library);
  check.values["library"] = library;
  check.found =
      fmt::format("{}; {}", library, mpiexec.empty() ? "no mpiexec in PATH" : "mpiexec: " + mpiexec);
  if (ranks)
    check.found +=
        *ranks == 0 ? "; started by a launcher" : fmt::format("; started as one of {} ranks", *ranks);
  if (mpiexec.empty()) {
    check.advice = "install the launcher of this MPI, or start ranks with srun";
    return;
  }
  const MpiFamily ours = family_of_library(report.library), launcher = family_of_launcher(mpiexec);
  if (ours == MpiFamily::Unknown || launcher == MpiFamily::Unknown || ours == launcher) return;
  check.state = State::Broken;
  check.found += " belongs to another MPI";
  check.advice = "put the mpiexec of the MPI that the module was built with first in PATH";
}

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

void take_devices(Check& check, const CudaReport& report) {
  Json devices = Json::array();
  for (const CudaReport::Device& device : report.devices)
    devices.push_back({{"name", device.name}, {"bytes", device.memory}, {"problem", device.problem}});
  check.values["devices"] = std::move(devices);
  if (!report.problem.empty()) {
    check.state = report.absent ? State::Absent : State::Broken;
    check.found = report.problem;
    return;
  }
  const CudaReport::Device& first = report.devices.front();
  check.found = fmt::format("{} device{}, the first {} with {}; driver for CUDA {}", report.devices.size(),
                            report.devices.size() == 1 ? "" : "s", first.name, bytes_text(first.memory),
                            cuda_text(report.driver));
  for (const CudaReport::Device& device : report.devices)
    if (!device.problem.empty()) {
      check.state = State::Broken;
      check.found = device.problem;
      return;
    }
}

void take_libraries(Check& check, const CudaReport& report) {
  Json libraries = Json::object();
  std::vector<std::string> present, missing;
  for (const CudaReport::Library& library : report.libraries) {
    libraries[library.name] = {{"version", library.version}, {"problem", library.problem}};
    (library.problem.empty() ? present : missing)
        .push_back(library.problem.empty() ? library.name + " " + library.version : library.name);
    if (!library.outdated) continue;
    check.state = State::Broken;
    check.found = library.problem;
  }
  check.values["libraries"] = std::move(libraries);
  if (check.state == State::Broken) return;
  const auto add = [&](const std::string& text) {
    check.found += (check.found.ends_with('.') ? " " : "; ") + text;
  };
  if (!present.empty()) add(fmt::format("{}", fmt::join(present, ", ")));
  if (missing.empty()) return;
  add(fmt::format("{} cannot be opened", fmt::join(missing, ", ")));
  check.advice =
      "install CUDA's libraries, as packages or wheels, or name their folders in TRIFOLD_CUDA_LIBRARY_PATH";
}

void check_cuda_module(Check& check) {
  check.values = {{"module", nullptr},
                  {"driver", nullptr},
                  {"needed", nullptr},
                  {"devices", nullptr},
                  {"libraries", nullptr}};
  try_in_child(kCudaModuleFile, [] { report_cuda(); });
  const CudaReport report = report_cuda();
  if (!take_module(
          check, report.module, kCudaModuleFile,
          "for NVIDIA GPUs build where nvcc 12.8 or newer is found: docs/gpus_and_clusters.md#nvidia-gpus",
          "build and install the program and its modules together: docs/install.md"))
    return;
  check.values["driver"] = report.driver > 0 ? Json(cuda_text(report.driver)) : Json();
  check.values["needed"] = cuda_text(report.needed);
  take_devices(check, report);
  take_libraries(check, report);
}

void check_parquet_module(Check& check) {
  check.values = {{"module", nullptr}, {"arrow", nullptr}};
  try_in_child(kParquetModuleFile, [] { report_parquet(); });
  const ParquetReport report = report_parquet();
  constexpr const char* kAdvice =
      "pip install --target build/parquet_tools pyarrow, then configure and build again: docs/install.md#parquet";
  if (!take_module(check, report.module, kParquetModuleFile, kAdvice, kAdvice)) return;
  check.values["arrow"] = report.arrow;
  check.found = fmt::format("Apache Arrow {}", report.arrow);
}

void check_jinja_module(Check& check) {
  check.values = {{"module", nullptr}, {"jinja", nullptr}};
  try_in_child(kJinjaModuleFile, [] { report_jinja(); });
  const JinjaReport report = report_jinja();
  constexpr const char* kAdvice =
      "apt-get install libpython3-dev python3-jinja2, then configure and build again: docs/install.md#chat-templates";
  if (!take_module(check, report.module, kJinjaModuleFile, kAdvice, kAdvice)) return;
  check.values["jinja"] = report.library;
  check.found = report.usable() ? report.library : report.problem;
  if (report.usable()) return;
  check.state = State::Broken;
  check.advice = kAdvice;
}

}  // namespace

std::vector<Check> check_modules() {
  return {checked("mpi", "MPI", check_mpi_module), checked("cuda", "CUDA", check_cuda_module),
          checked("parquet", "Parquet", check_parquet_module), checked("jinja", "Jinja", check_jinja_module)};
}

}  // namespace trifold::launch
