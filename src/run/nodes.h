// The process and the node of each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trifold {

// The node of each rank of `world`, counted from 0 in the order of the ranks. Ranks with the same host name share a
// node; if `ranks_per_node` is given, that many consecutive ranks do. Collective.
std::vector<int> nodes_of_ranks(Communicator& world, const std::optional<int>& ranks_per_node);

// The process that runs a rank.
struct RankProcess {
  std::string host;
  int64_t pid = 0;

  bool operator==(const RankProcess&) const = default;
};

// Describes the processes of `world`, a text for each host: "host a: ranks 0-7 are pids 4711-4718". It identifies the
// rank of a process that the launcher or the kernel names. Empty if one process runs all ranks. Collective.
std::vector<std::string> processes_of_ranks(Communicator& world);
// The lines for these ranks, without communication.
std::vector<std::string> process_lines(std::span<const RankProcess> ranks);

}  // namespace trifold
