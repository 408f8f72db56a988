#include <archive.h>
#include <dnnl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <unicode/uversion.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/bytes_text.h"
#include "core/control_groups.h"
#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "launch/doctor/checks.h"
#include "ops/ops.h"

namespace trifold::launch {

namespace {

namespace fs = std::filesystem;
using State = Check::State;

constexpr size_t kLittleSharedMemory = size_t{256} << 20;  // bytes; 64 MiB is a container's default

void check_cpu(Check& check) {
  const int cores = available_cores();
  const auto all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const double limit = core_limit();
  check.values = {{"operations", nullptr},
                  {"cores", cores},
                  {"host_cores", all},
                  {"core_limit", limit > 0 ? nlohmann::ordered_json(limit) : nullptr}};
  check.values["operations"] = cpu_ops().name;  // throws if the program was built for another CPU
  check.found = fmt::format("operations {}, {}", cpu_ops().name,
                            cores < all ? fmt::format("{} of {} cores (affinity mask)", cores, all)
                                        : fmt::format("{} core{}", cores, cores == 1 ? "" : "s"));
  if (limit == 0 || limit >= cores) return;
  check.found += fmt::format(", of which the control group allows the time of {:.3g}", limit);
  check.advice = fmt::format("let all ranks together use {} thread{}: --ranks, --threads-per-rank",
                             std::max(1, static_cast<int>(std::floor(limit))), limit < 2 ? "" : "s");
}

void check_memory(Check& check) {
  const auto installed =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t allowed = physical_memory(), with_swap = host_memory(), available = free_memory();
  std::error_code error;
  const fs::space_info shared = fs::space("/dev/shm", error);
  const bool has_shared = !error;
  check.values = {
      {"bytes", installed},
      {"allowed_bytes", allowed},
      {"allowed_with_swap_bytes", with_swap},
      {"free_bytes", available},
      {"shared_memory_bytes", has_shared ? nlohmann::ordered_json(shared.capacity) : nullptr},
      {"shared_memory_free_bytes", has_shared ? nlohmann::ordered_json(shared.available) : nullptr}};
  check.found = allowed > 0 && allowed < installed
                    ? fmt::format("{} of {} (control group)", bytes_text(allowed), bytes_text(installed))
                    : bytes_text(installed);
  if (with_swap > allowed)
    check.found += fmt::format(" and {} of swap space", bytes_text(with_swap - allowed));
  check.found += fmt::format(", {} free; ", bytes_text(available));
  check.found += has_shared ? fmt::format("/dev/shm {}, {} free", bytes_text(shared.capacity),
                                          bytes_text(shared.available))
                            : "no /dev/shm";
  if (!has_shared || shared.available < kLittleSharedMemory)
    check.advice =
        "MPI and NCCL exchange data between processes of a host through /dev/shm: give a container more, "
        "such as docker run --shm-size 2g";
}

// The program links these libraries and would not have started without them.
void check_libraries(Check& check) {
  unsigned major = 0, minor = 0, patch = 0;
  H5get_libversion(&major, &minor, &patch);
  UVersionInfo icu{};
  u_getVersion(icu);
  const dnnl_version_t* dnnl = dnnl_version();
  check.values = {{"hdf5", fmt::format("{}.{}.{}", major, minor, patch)},
                  {"icu", fmt::format("{}.{}", icu[0], icu[1])},
                  {"onednn", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
                  {"libarchive", std::string(archive_version_string()).substr(sizeof("libarchive"))}};
  check.found =
      fmt::format("HDF5 {}, oneDNN {}, libarchive {}, ICU {}, SentencePiece",
                  check.values["hdf5"].get<std::string>(), check.values["onednn"].get<std::string>(),
                  check.values["libarchive"].get<std::string>(), check.values["icu"].get<std::string>());
}

struct BatchSystem {
  const char* name;
  const char* command;  // that only this system has
  const char* submit;
  const char* mark;   // the environment variable that its jobs have
  const char* job;    // the one with the job's id
  const char* hosts;  // the one with the number of hosts; null: none
};
constexpr std::array<BatchSystem, 4> kBatchSystems{
    {{"Slurm", "sbatch", "sbatch", "SLURM_JOB_ID", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"},
     {"PBS", "pbsnodes", "qsub", "PBS_JOBID", "PBS_JOBID", nullptr},
     {"LSF", "bsub", "bsub", "LSB_JOBID", "LSB_JOBID", nullptr},
     {"Grid Engine", "qconf", "qsub", "SGE_TASK_ID", "JOB_ID", "NHOSTS"}}};

std::string variable(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  return text == nullptr ? "" : text;
}

void check_batch(Check& check) {
  check.values = {{"system", nullptr}, {"job", nullptr}, {"hosts", nullptr}};
  for (const BatchSystem& system : kBatchSystems) {
    if (variable(system.mark).empty()) continue;
    const std::string job = variable(system.job), hosts = variable(system.hosts);
    check.values = {{"system", system.name}, {"job", job}, {"hosts", nullptr}};
    check.found = fmt::format("{}, inside job {}", system.name, job);
    if (hosts.empty()) return;
    check.values["hosts"] = hosts;
    check.found += fmt::format(" on {} host{}", hosts, hosts == "1" ? "" : "s");
    return;
  }
  for (const BatchSystem& system : kBatchSystems) {
    const std::string command = command_in_path(system.command);
    if (command.empty()) continue;
    check.values["system"] = system.name;
    check.found = fmt::format("{} ({}), outside a job", system.name, command);
    check.advice = fmt::format("submit runs with {}: docs/operate.md", system.submit);
    return;
  }
  check.state = State::Absent;
  check.found = "no command or job of Slurm, PBS, LSF or Grid Engine";
}

}  // namespace

std::vector<Check> check_host() {
  return {checked("cpu", "CPU", check_cpu), checked("memory", "memory", check_memory),
          checked("libraries", "libraries", check_libraries), checked("batch", "batch system", check_batch)};
}

std::string command_in_path(const char* name) {
  const std::string path = variable("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path file = fs::path(path.substr(begin, end - begin)) / name;
    std::error_code error;
    if (end > begin && fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0)
      return file.string();
    begin = end + 1;
  }
  return "";
}

}  // namespace trifold::launch
