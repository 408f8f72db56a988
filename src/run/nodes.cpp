#include "run/nodes.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "layout/zero_sharing.h"

namespace trifold {

namespace {

// The process of every rank.
std::vector<RankProcess> gather_processes(Communicator& world) {
  struct Plain {
    int64_t pid;
    char host[256];
  };
  Plain mine{getpid(), {}};
  gethostname(mine.host, sizeof(mine.host) - 1);
  std::vector<Plain> all(static_cast<size_t>(world.size()));
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Plain));
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_gather({all.data(), DType::U8, {world.size() * kBytes}}, {&mine, DType::U8, {kBytes}}, stream);
  std::vector<RankProcess> processes;
  for (const Plain& each : all) processes.push_back({each.host, each.pid});
  return processes;
}

// "ranks 0-3 are pids 12-15", for consecutive ranks with consecutive pids.
std::string run_text(int first_rank, int64_t first_pid, int count) {
  if (count == 1) return fmt::format("rank {} is pid {}", first_rank, first_pid);
  return fmt::format("ranks {}-{} are pids {}-{}", first_rank, first_rank + count - 1, first_pid,
                     first_pid + count - 1);
}

}  // namespace

std::vector<int> nodes_of_ranks(Communicator& world, const std::optional<int>& ranks_per_node) {
  if (ranks_per_node) return planned_nodes(world.size(), ranks_per_node);
  std::map<std::string, int> known;
  std::vector<int> nodes;
  for (const RankProcess& process : gather_processes(world))
    nodes.push_back(known.emplace(process.host, static_cast<int>(known.size())).first->second);
  return nodes;
}

std::vector<std::string> processes_of_ranks(Communicator& world) {
  return process_lines(gather_processes(world));
}

std::vector<std::string> process_lines(std::span<const RankProcess> ranks) {
  if (std::all_of(ranks.begin(), ranks.end(), [&](const RankProcess& each) { return each == ranks[0]; }))
    return {};
  std::vector<std::string> hosts;  // in the order of their first ranks
  std::map<std::string, std::string> lines;
  const int size = static_cast<int>(ranks.size());
  for (int first = 0, end = 0; first < size; first = end) {
    const auto& [host, pid] = ranks[static_cast<size_t>(first)];
    for (end = first + 1; end < size; ++end)
      if (ranks[static_cast<size_t>(end)] != RankProcess{host, pid + end - first}) break;
    const auto [line, is_new] = lines.try_emplace(host, fmt::format("host {}: ", host));
    if (is_new) hosts.push_back(host);
    line->second += (is_new ? "" : ", ") + run_text(first, pid, end - first);
  }
  std::vector<std::string> texts;
  for (const std::string& host : hosts) texts.push_back(lines[host]);
  return texts;
}

}  // namespace trifold
