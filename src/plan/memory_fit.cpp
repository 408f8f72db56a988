#include "plan/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "comm/cuda_module.h"
#include "comm/mpi_module.h"
#include "config/commands/validate.h"
#include "config/options/bounds.h"
#include "config/subjects/mesh.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "mesh/mesh_sizes.h"
#include "plan/memory_needs.h"
#include "plan/report.h"

namespace trifold {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gib(size_t bytes) { return static_cast<double>(bytes) / kGiB; }

size_t ranks_here(const PretrainConfig& config) {
  return static_cast<size_t>(ranks_to_share_host(config.mesh.ranks));
}

std::vector<MemoryReport> memory_of(const PlannedRun& planned) {
  std::vector<MemoryReport> ranks;
  for (const PlannedRank& rank : planned_ranks(planned)) ranks.push_back(rank.memory);
  return ranks;
}

// The memory of the ranks of a run whose options may not be valid.
std::vector<MemoryReport> memory_of(const PretrainConfig& config) {
  PlanConfig plan;
  plan.run = config;
  const RunSpec run = run_spec_here(resolve(std::move(plan)).run);
  return memory_of(PlannedRun(run, batches_to_simulate(run)));
}

size_t place_of_most(const std::vector<MemoryReport>& ranks) {
  const auto less = [](const auto& a, const auto& b) { return a.predicted_total() < b.predicted_total(); };
  return static_cast<size_t>(std::max_element(ranks.begin(), ranks.end(), less) - ranks.begin());
}

size_t most_of(const std::vector<MemoryReport>& ranks) {
  return ranks[place_of_most(ranks)].predicted_total();
}

// All pipeline ranks stand for equally many ranks of the run.
MemoryNeeds needs_of(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) {
  std::vector<size_t> bytes;
  for (const MemoryReport& rank : ranks) bytes.push_back(rank.predicted_total());
  return MemoryNeeds(std::move(bytes), static_cast<size_t>(config.mesh.ranks) / ranks.size());
}

// The memory available to ranks.
struct Room {
  double gib = 0;         // memory of all `ranks` together
  size_t ranks = 1;       // ranks that share the memory
  const char* more = "";  // resource that doubles the memory for twice the ranks; empty: nothing is shared
  bool can_be_apart = false;  // whether the sharing ranks could each have as much

  bool fits(const PretrainConfig& config, const std::vector<MemoryReport>& memory) const {
    return trifold::gib(needs_of(config, memory).sum_of_most(ranks)) <= gib;
  }
  Room apart() const { return {gib, 1, more}; }
};

// A variant of the rejected run, which differs in the named options.
struct Other {
  std::string options;
  PretrainConfig config;
};

// Micro-batches down to the size at which a plan can still be made quickly.
std::vector<Other> smaller_micro_batches(const PretrainConfig& config) {
  constexpr int64_t kMostMicroBatches = 1 << 16;
  std::vector<Other> list;
  const int64_t samples = *config.batch.global_batch_size / *config.mesh.data_parallel_size;
  for (int64_t size = config.batch.micro_batch_size / 2; size >= 1; size /= 2) {
    if (samples / size > kMostMicroBatches) break;
    list.push_back({fmt::format("--micro-batch-size {}", size), config});
    list.back().config.batch.micro_batch_size = size;
  }
  return list;
}

std::vector<Other> recomputations(const PretrainConfig& config) {
  std::vector<Other> list;
  for (const auto& [name, value] :
       {std::pair("selective", RecomputeGranularity::Selective), {"full", RecomputeGranularity::Full}}) {
    if (value <= config.mesh.recompute_granularity) continue;
    list.push_back({fmt::format("--recompute-granularity {}", name), config});
    list.back().config.mesh.recompute_granularity = value;
  }
  return list;
}

std::vector<Other> zero_stages(const PretrainConfig& config) {
  std::vector<Other> list;
  if (gradient_ranks(config.mesh) < 2) return list;
  for (int stage = config.zero.zero_stage + 1; stage <= 3; ++stage) {
    list.push_back({fmt::format("--zero-stage {}", stage), config});
    list.back().config.zero.zero_stage = stage;
  }
  return list;
}

std::vector<Other> sequence_parallel(const PretrainConfig& config) {
  if (config.mesh.sequence_parallel || config.mesh.tensor_model_parallel_size < 2) return {};
  Other other{"--sequence-parallel", config};
  other.config.mesh.sequence_parallel = true;
  return {std::move(other)};
}

// More hosts or devices in proportion to ranks: the number of ranks on each stays the same.
std::vector<Other> more_ranks(const PretrainConfig& config, const Room& room) {
  constexpr int kMostTimes = 64;
  std::vector<Other> list;
  for (int times = 2; times <= kMostTimes; times *= 2)
    for (const bool tensor : {false, true}) {
      Other other{"", config};
      MeshConfig& mesh = other.config.mesh;
      int& axis = tensor ? mesh.tensor_model_parallel_size : mesh.pipeline_model_parallel_size;
      if (int64_t{mesh.ranks} * times > kMaxRanks) continue;
      axis *= times;
      mesh.ranks *= times;
      other.options = fmt::format("--ranks {} --{}-model-parallel-size {}", mesh.ranks,
                                  tensor ? "tensor" : "pipeline", axis);
      if (*room.more != 0) other.options += fmt::format(" on {} times as many {}", times, room.more);
      list.push_back(std::move(other));
    }
  return list;
}

using Kind = std::vector<Other> (*)(const PretrainConfig&);
constexpr Kind kKinds[] = {smaller_micro_batches, recomputations, sequence_parallel, zero_stages};

// The needs of the run, if it is valid.
std::optional<std::vector<MemoryReport>> try_plan(const PretrainConfig& config) {
  try {
    return memory_of(config);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The first run of the list that fits, with its needs.
std::optional<std::string> first_that_fits(const std::vector<Other>& list, const Room& room) {
  for (const Other& other : list) {
    const auto ranks = try_plan(other.config);
    if (!ranks || !room.fits(other.config, *ranks)) continue;
    return fmt::format("{} ({} a rank)", other.options, bytes_text(most_of(*ranks)));
  }
  return std::nullopt;
}

// The run with every kind of change at its strongest: the last run of each list that can be planned.
Other all_together(const PretrainConfig& config) {
  Other all{"", config};
  for (const Kind kind : kKinds) {
    std::vector<Other> list = kind(all.config);
    while (!list.empty() && !try_plan(list.back().config)) list.pop_back();
    if (list.empty()) continue;
    all = {all.options + (all.options.empty() ? "" : " ") + list.back().options,
           std::move(list.back().config)};
  }
  return all;
}

// The run with a device for each rank.
std::vector<Other> ranks_apart(const PretrainConfig& config) {
  return {{fmt::format("a device for each rank (mpirun -n {})", config.mesh.ranks), config}};
}

std::string what_would_fit(const PretrainConfig& config, const Room& room) {
  std::vector<std::string> ways;
  const auto try_all = [&](const std::vector<Other>& list, const Room& in) {
    if (auto way = first_that_fits(list, in)) ways.push_back(std::move(*way));
  };
  for (const Kind kind : kKinds) try_all(kind(config), room);
  const Other all = all_together(config);
  if (ways.empty() && !all.options.empty()) try_all({all}, room);
  const Room further = room.can_be_apart ? room.apart() : room;
  if (room.can_be_apart) try_all(ranks_apart(config), further);
  try_all(more_ranks(config, further), further);
  if (ways.empty()) {
    std::vector<Other> list = more_ranks(all.config, further);
    for (Other& other : list) other.options = all.options + " " + other.options;
    try_all(list, further);
  }
  if (!ways.empty()) return fits_with(ways, "");
  return fmt::format(
      "smaller micro-batches, recomputation, ZeRO stages and up to 64 times as many ranks were tried, and "
      "none makes it fit{}",
      all.options.empty() ? ""
                          : fmt::format("; with {} a rank needs {}", all.options,
                                        bytes_text(most_of(memory_of(all.config)))));
}

std::string parts_of(const MemoryReport& memory) {
  return fmt::format("weights {}, gradients {}, optimizer {}, activations {}{}",
                     bytes_text(memory.parameters), bytes_text(memory.gradients),
                     bytes_text(memory.optimizer), bytes_text(memory.predicted_activations),
                     memory.workspace == 0 ? "" : ", work space " + bytes_text(memory.workspace));
}

// It is not known yet which of the ranks are on this host.
void check_host(const PretrainConfig& config, const std::vector<MemoryReport>& ranks, size_t host) {
  const size_t here = ranks_here(config);
  const size_t least = needs_of(config, ranks).sum_of_least(here);
  if (least <= host) return;
  const MemoryReport& most = ranks[place_of_most(ranks)];
  refuse_for_memory(here, "at least " + bytes_text(least), "on this host", host, most.predicted_total(),
                    parts_of(most), what_would_fit(config, {gib(host), here, "hosts"}));
}

size_t largest_device() {
  size_t most = 0;
  for (int index = 0; index < cuda_device_count(); ++index) most = std::max(most, cuda_device_memory(index));
  return most;
}

// Ranks that are threads share the first device (run/device.h).
void check_shared_device(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) {
  const auto world = static_cast<size_t>(config.mesh.ranks);
  const size_t device = cuda_device_memory(0);
  const size_t all = needs_of(config, ranks).sum_of_most(world);
  if (all <= device) return;
  const MemoryReport& most = ranks[place_of_most(ranks)];
  refuse_for_memory(world, bytes_text(all), world == 1 ? "on its device" : "on one device", device,
                    most.predicted_total(), parts_of(most),
                    what_would_fit(config, {gib(device), world, "devices", world > 1}));
}

// Each process has a separate device; it is not known yet which of the host's devices.
void check_own_device(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) {
  const MeshSizes sizes = mesh_sizes(config.mesh);
  const std::optional<int> rank = mpi_launch_rank();
  const auto least = [](const auto& a, const auto& b) { return a.predicted_total() < b.predicted_total(); };
  const size_t place =
      rank && *rank < config.mesh.ranks
          ? static_cast<size_t>(coords_of(*rank, sizes)[Axis::Pp])
          : static_cast<size_t>(std::min_element(ranks.begin(), ranks.end(), least) - ranks.begin());
  const size_t device = largest_device();
  if (ranks[place].predicted_total() <= device) return;
  bad_input(
      "pipeline rank {} needs {} of memory on its device ({}), and the largest device of this host has {}: "
      "{}",
      place, bytes_text(ranks[place].predicted_total()), parts_of(ranks[place]), bytes_text(device),
      what_would_fit(config, {gib(device), 1, "devices"}));
}

// The memory for a rank alone on this host; 0: unknown.
size_t memory_of_one(const MeshConfig& mesh) {
  return mesh.device == ComputeDevice::Cuda ? cuda_device_memory(0) : host_memory();
}

}  // namespace

RunSpec run_spec_here(const PretrainConfig& config) {
  RunSpec run = run_spec(config);
  if (!run.mesh.threads_per_rank && run.mesh.device != ComputeDevice::Cuda)
    run.mesh.threads_per_rank = std::max(1, available_cores() / static_cast<int>(ranks_here(config)));
  return run;
}

void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) {
  const std::optional<double> limit = config.mesh.memory_limit;
  if (!limit) return;
  const size_t most = place_of_most(ranks);
  if (gib(ranks[most].predicted_total()) <= *limit) return;
  bad_input("pipeline rank {} needs {} ({}), and --memory-limit is {} GiB: {}", most,
            bytes_text(ranks[most].predicted_total()), parts_of(ranks[most]), *limit,
            what_would_fit(config, {*limit}));
}

void check_memory_fits(const PretrainConfig& config, const PlannedRuns& planned) {
  std::vector<MemoryReport> ranks;
  for (const auto& plan : planned.all()) {
    std::vector<MemoryReport> needed = memory_of(*plan);
    if (ranks.empty() || most_of(needed) > most_of(ranks)) ranks = std::move(needed);
  }
  if (config.mesh.memory_limit) return check_memory_limit(config, ranks);
  if (config.mesh.device == ComputeDevice::Cuda)
    return mpi_launch_size() ? check_own_device(config, ranks) : check_shared_device(config, ranks);
  if (const size_t host = host_memory()) check_host(config, ranks, host);
}

std::string misfit_alone(const PretrainConfig& config, const MemoryReport& memory) {
  const size_t here = memory_of_one(config.mesh);
  if (here == 0 || memory.predicted_total() <= here) return {};
  return fmt::format("needs {} ({}), and {} has {}", bytes_text(memory.predicted_total()), parts_of(memory),
                     config.mesh.device == ComputeDevice::Cuda ? "the device" : "this host",
                     bytes_text(here));
}

std::string what_would_fit_alone(const PretrainConfig& config, std::optional<double> memory_gib) {
  return what_would_fit(config, {memory_gib.value_or(gib(memory_of_one(config.mesh)))});
}

}  // namespace trifold
