#include "recommend/planning/host_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/mpi_module.h"
#include "config/commands/validate.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/host_memory.h"
#include "plan/memory_needs.h"

namespace trifold {

namespace {

std::vector<RecommenderMemory> memory_of_run(const RecommenderSetup& setup, int ranks) {
  return memory_of_ranks(setup, placement_of(setup, ranks), setup.device == ComputeDevice::Cuda);
}

// What each rank takes on its host.
MemoryNeeds needs_of(const std::vector<RecommenderMemory>& memory, bool has_device) {
  std::vector<size_t> bytes;
  for (const RecommenderMemory& rank : memory) bytes.push_back(rank.on_host(has_device));
  return MemoryNeeds(std::move(bytes));
}

// Finds changes of a run with which it fits a host.
class Ways {
 public:
  Ways(const RecommendConfig& config, const RecommenderSetup& setup, size_t here, size_t host)
      : config_(config), setup_(setup), here_(here), host_(host) {}

  // The memory of the ranks of a host if they fit.
  std::optional<size_t> fits(const RecommendConfig& other) const {
    try {
      RecommenderSetup changed = recommender_setup(other, setup_.schema, other.mesh.ranks);
      changed.training = setup_.training;
      const size_t all =
          needs_of(memory_of_run(changed, other.mesh.ranks), changed.device == ComputeDevice::Cuda)
              .sum_of_most(here_);
      return all <= host_ ? std::optional(all) : std::nullopt;
    } catch (const Error&) {  // not a valid run
      return std::nullopt;
    }
  }

  // The smallest of a few caches with which the run is valid.
  std::optional<std::string> tables_in_files() const {
    if (config_.placement.table_storage) return std::nullopt;
    constexpr double kMostCache = 1024;
    RecommendConfig other = config_;
    other.placement.table_storage = ".";
    for (double cache = config_.placement.table_cache.value_or(1); cache <= kMostCache; cache *= 2) {
      other.placement.table_cache = cache;
      if (const auto all = fits(other))
        return fmt::format("--table-storage DIR --table-cache {} ({} on this host)", cache, bytes_text(*all));
    }
    return std::nullopt;
  }

  std::optional<std::string> more_hosts() const {
    constexpr int kMostTimes = 64;
    RecommendConfig other = config_;
    for (int times = 2; times <= kMostTimes; times *= 2) {
      other.mesh.ranks = config_.mesh.ranks * times;
      if (const auto all = fits(other))
        return fmt::format("--ranks {} on {} times as many hosts ({} on each)", other.mesh.ranks, times,
                           bytes_text(*all));
    }
    return std::nullopt;
  }

 private:
  const RecommendConfig& config_;
  const RecommenderSetup& setup_;
  size_t here_, host_;
};

std::string what_would_fit(const Ways& ways) {
  std::vector<std::string> found;
  for (const auto& way : {ways.tables_in_files(), ways.more_hosts()})
    if (way) found.push_back(*way);
  return fits_with(found,
                   "neither tables in files (--table-storage) nor up to 64 times as many ranks make it fit");
}

std::string parts_of(const RecommenderMemory& memory, bool has_device) {
  if (has_device)
    return fmt::format("pinned {}, owners of rows and caches {}", bytes_text(memory.pinned),
                       bytes_text(memory.host));
  return fmt::format("tables {}, their state {}, MLPs {}", bytes_text(memory.tables),
                     bytes_text(memory.table_state), bytes_text(memory.dense));
}

}  // namespace

size_t memory_for_ranks(bool has_device) { return has_device ? physical_memory() : host_memory(); }

void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup, size_t host) {
  if (host == 0) return;
  const bool has_device = setup.device == ComputeDevice::Cuda;
  const int ranks = config.mesh.ranks;
  const auto here = static_cast<size_t>(ranks_to_share_host(ranks));
  const std::vector<RecommenderMemory> memory = memory_of_run(setup, ranks);
  // Which of the ranks are here is not known yet.
  const size_t least = needs_of(memory, has_device).sum_of_least(here);
  if (least <= host) return;
  const auto most = std::max_element(memory.begin(), memory.end(), [&](const auto& a, const auto& b) {
    return a.on_host(has_device) < b.on_host(has_device);
  });
  refuse_for_memory(here, "at least " + bytes_text(least),
                    has_device ? "for the tables of devices on this host" : "on this host", host,
                    most->on_host(has_device), parts_of(*most, has_device),
                    what_would_fit(Ways(config, setup, here, host)));
}

void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup) {
  check_host_fits(config, setup, memory_for_ranks(setup.device == ComputeDevice::Cuda));
}

std::string misfit_alone(const RecommendConfig& config, const RecommenderSetup& setup, int rank) {
  const bool has_device = setup.device == ComputeDevice::Cuda;
  const size_t host = memory_for_ranks(has_device);
  const RecommenderMemory memory = memory_of_run(setup, config.mesh.ranks)[static_cast<size_t>(rank)];
  if (host == 0 || memory.on_host(has_device) <= host) return {};
  return fmt::format("needs {} ({}), and this host has {}: {}", bytes_text(memory.on_host(has_device)),
                     parts_of(memory, has_device), bytes_text(host),
                     what_would_fit(Ways(config, setup, 1, host)));
}

}  // namespace trifold
