// Which process each rank is, and which ranks share a node.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trifold {

// The node of each rank of `world`, counted from 0 in the order of the ranks. Ranks that see the same host
// name share a node; or `ranks_per_node` ranks that follow each other do. Collective.
std::vector<int> nodes_of_ranks(Communicator& world, const std::optional<int>& ranks_per_node);

// The process that runs a rank.
struct RankProcess {
  std::string host;
  int64_t pid = 0;

  bool operator==(const RankProcess&) const = default;
};

// Which process each rank of `world` is: "host a: ranks 0-7 are pids 4711-4718", one text a host, so that a
// person can tell the rank of a process that the launcher or the kernel names. Empty where one process runs
// all ranks. Collective.
std::vector<std::string> processes_of_ranks(Communicator& world);
// The same for these ranks.
std::vector<std::string> process_lines(std::span<const RankProcess> ranks);

}  // namespace trifold
