#include "train/nodes.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "config/validate_mesh.h"
#include "core/error.h"
#include "mesh/mesh_sizes.h"

namespace trifold {

namespace {

// Of every rank.
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

// "ranks 0-3 are pids 12-15", for ranks and processes that both follow each other.
std::string run_text(int first_rank, int64_t first_pid, int count) {
  if (count == 1) return fmt::format("rank {} is pid {}", first_rank, first_pid);
  return fmt::format("ranks {}-{} are pids {}-{}", first_rank, first_rank + count - 1, first_pid,
                     first_pid + count - 1);
}

// Ranks that follow each other on the data axis and live on one node: the length of each such run, for the
// ranks with these coordinates on the other axes.
std::vector<int> runs_on_nodes(const MeshSizes& sizes, MeshCoords at, std::span<const int> nodes) {
  std::vector<int> runs;
  int last = -1;
  for (at[Axis::Dp] = 0; at[Axis::Dp] < sizes[Axis::Dp]; ++at[Axis::Dp]) {
    const int node = nodes.empty() ? 0 : nodes[static_cast<size_t>(rank_of(at, sizes))];
    if (runs.empty() || node != last) runs.push_back(0);
    ++runs.back();
    last = node;
  }
  return runs;
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

std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(ranks_per_node ? rank / *ranks_per_node : 0);
  return nodes;
}

namespace {

// The data-parallel ranks that share.
int group_size(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes) {
  if (!config.zero_group_size || !config.zero_group_size->follows_nodes())
    return given_group_size(config).value_or(sizes[Axis::Dp]);
  const int group = runs_on_nodes(sizes, {}, nodes).front();
  MeshCoords at;
  for (at[Axis::Pp] = 0; at[Axis::Pp] < sizes[Axis::Pp]; ++at[Axis::Pp])
    for (at[Axis::Tp] = 0; at[Axis::Tp] < sizes[Axis::Tp]; ++at[Axis::Tp])
      for (const int run : runs_on_nodes(sizes, at, nodes))
        if (run != group)
          bad_input(
              "--zero-group-size node: some nodes have {} of the data-parallel ranks that could share, "
              "others {}; "
              "give the same number of ranks to every node, a multiple of tensor {} ranks, or a number for "
              "--zero-group-size",
              group, run, sizes[Axis::Tp]);
  if (group == 1 && sizes[Axis::Dp] > 1)
    bad_input(
        "--zero-group-size node: every node has one data-parallel rank of a kind, so nothing would be shared "
        "out; leave it out, or give fewer tensor ranks than a node has ranks");
  return group;
}

}  // namespace

ZeroSharing zero_sharing(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes) {
  return {config.zero_stage, group_size(config, sizes, nodes), sizes.ranks(kDataAxes)};
}

ZeroSharing zero_sharing(const PretrainConfig& run) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  return zero_sharing(run.zero, sizes, planned_nodes(sizes.ranks(), run.mesh.ranks_per_node));
}

}  // namespace trifold
