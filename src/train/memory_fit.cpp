#include "train/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "comm/mpi_module.h"
#include "config/option_groups.h"
#include "config/validate.h"
#include "core/error.h"
#include "train/host_memory.h"
#include "train/plan_report.h"

namespace trifold {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double gib(size_t bytes) { return static_cast<double>(bytes) / kGiB; }

// "3.20 GiB"; of small models in MiB.
std::string text_of(size_t bytes) {
  return gib(bytes) >= 0.1 ? fmt::format("{:.2f} GiB", gib(bytes))
                           : fmt::format("{:.2f} MiB", 1024 * gib(bytes));
}

std::vector<MemoryReport> memory_of(const PretrainConfig& config) {
  PlanConfig plan;
  plan.run = config;
  std::vector<MemoryReport> ranks;
  for (const PlannedRank& rank : plan_ranks(resolve(std::move(plan)))) ranks.push_back(rank.memory);
  return ranks;
}

size_t place_of_most(const std::vector<MemoryReport>& ranks) {
  const auto less = [](const auto& a, const auto& b) { return a.predicted_total() < b.predicted_total(); };
  return static_cast<size_t>(std::max_element(ranks.begin(), ranks.end(), less) - ranks.begin());
}

size_t most_of(const std::vector<MemoryReport>& ranks) {
  return ranks[place_of_most(ranks)].predicted_total();
}

// What the `count` ranks of the run that need least, or most, need together. All places of the pipeline have
// as many ranks.
size_t sum_of(const std::vector<MemoryReport>& ranks, size_t world, size_t count, bool of_most) {
  std::vector<size_t> needs;
  for (const MemoryReport& rank : ranks) needs.push_back(rank.predicted_total());
  std::sort(needs.begin(), needs.end());
  if (of_most) std::reverse(needs.begin(), needs.end());
  const size_t copies = world / ranks.size();
  size_t sum = 0;
  for (size_t i = 0; i < needs.size() && count > 0; ++i) {
    const size_t taken = std::min(copies, count);
    sum += taken * needs[i];
    count -= taken;
  }
  return sum;
}

// What there is for the ranks.
struct Room {
  std::optional<double> of_rank;  // GiB, --memory-limit
  size_t of_host = 0;             // bytes, where that is not given
  size_t ranks_on_host = 1;

  bool fits(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) const {
    if (of_rank) return gib(most_of(ranks)) <= *of_rank;
    const auto world = static_cast<size_t>(config.mesh.ranks);
    return sum_of(ranks, world, std::min(world, ranks_on_host), true) <= of_host;
  }
};

// A run that is like the one refused but for the options named.
struct Other {
  std::string options;
  PretrainConfig config;
};

std::vector<Other> smaller_micro_batches(const PretrainConfig& config) {
  std::vector<Other> list;
  for (int64_t size = config.batch.micro_batch_size / 2; size >= 1; size /= 2) {
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
  if (*config.mesh.data_parallel_size < 2) return list;
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

// As many hosts more as ranks: those on one stay as many.
std::vector<Other> more_ranks(const PretrainConfig& config) {
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
      if (!mesh.memory_limit) other.options += fmt::format(" on {} times as many hosts", times);
      list.push_back(std::move(other));
    }
  return list;
}

using Kind = std::vector<Other> (*)(const PretrainConfig&);
constexpr Kind kKinds[] = {smaller_micro_batches, recomputations, sequence_parallel, zero_stages};

// What the run needs, if there can be such a run.
std::optional<std::vector<MemoryReport>> try_plan(const PretrainConfig& config) {
  try {
    return memory_of(config);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The first of the list that fits, with what it needs.
std::optional<std::string> first_that_fits(const std::vector<Other>& list, const Room& room) {
  for (const Other& other : list) {
    const auto ranks = try_plan(other.config);
    if (!ranks || !room.fits(other.config, *ranks)) continue;
    return fmt::format("{} ({} a rank)", other.options, text_of(most_of(*ranks)));
  }
  return std::nullopt;
}

// The run with all that each kind can do: the last of each list that can be planned.
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

std::string what_would_fit(const PretrainConfig& config, const Room& room) {
  std::vector<std::string> ways;
  const auto try_all = [&](const std::vector<Other>& list) {
    if (auto way = first_that_fits(list, room)) ways.push_back(std::move(*way));
  };
  for (const Kind kind : kKinds) try_all(kind(config));
  const Other all = all_together(config);
  if (ways.empty() && !all.options.empty()) try_all({all});
  try_all(more_ranks(config));
  if (ways.empty()) {
    std::vector<Other> further = more_ranks(all.config);
    for (Other& other : further) other.options = all.options + " " + other.options;
    try_all(further);
  }
  if (!ways.empty()) return fmt::format("it fits with {}", fmt::join(ways, ", or with "));
  return fmt::format(
      "smaller micro-batches, recomputation, ZeRO stages and up to 64 times as many ranks were tried, and "
      "none "
      "makes it fit{}",
      all.options.empty()
          ? ""
          : fmt::format("; with {} a rank needs {}", all.options, text_of(most_of(memory_of(all.config)))));
}

std::string parts_of(const MemoryReport& memory) {
  return fmt::format("weights {}, gradients {}, optimizer {}, activations {}{}", text_of(memory.parameters),
                     text_of(memory.gradients), text_of(memory.optimizer),
                     text_of(memory.predicted_activations),
                     memory.workspace == 0 ? "" : ", work space " + text_of(memory.workspace));
}

// Under a launcher that does not say how many ranks it starts on a host, this one only.
size_t ranks_here(const PretrainConfig& config) {
  if (!mpi_launch_size()) return static_cast<size_t>(config.mesh.ranks);
  return static_cast<size_t>(mpi_launch_size_on_host().value_or(1));
}

}  // namespace

void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks) {
  const std::optional<double> limit = config.mesh.memory_limit;
  if (!limit) return;
  const size_t most = place_of_most(ranks);
  if (gib(ranks[most].predicted_total()) <= *limit) return;
  bad_input("pipeline rank {} needs {} ({}), and --memory-limit is {} GiB: {}", most,
            text_of(ranks[most].predicted_total()), parts_of(ranks[most]), *limit,
            what_would_fit(config, {limit}));
}

void check_memory_fits(const PretrainConfig& config) {
  const bool on_device = config.mesh.device == "cuda";
  const size_t host = on_device || config.mesh.memory_limit ? 0 : host_memory();
  if (!config.mesh.memory_limit && host == 0) return;
  const std::vector<MemoryReport> ranks = memory_of(config);
  check_memory_limit(config, ranks);
  if (config.mesh.memory_limit) return;
  const auto world = static_cast<size_t>(config.mesh.ranks);
  const size_t here = std::min(world, ranks_here(config));
  const size_t least = sum_of(ranks, world, here, false);
  if (least <= host) return;
  const MemoryReport& most = ranks[place_of_most(ranks)];
  bad_input("{} rank{} of this run need{} {} of memory on this host, which has {}: up to {} a rank ({}); {}",
            here, here == 1 ? "" : "s", here == 1 ? "s" : "", text_of(least), text_of(host),
            text_of(most.predicted_total()), parts_of(most),
            what_would_fit(config, {std::nullopt, host, here}));
}

}  // namespace trifold
