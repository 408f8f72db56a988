#include "train/nodes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>

#include "config/validate_mesh.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kNameBytes = 256;

// The host name of every rank.
std::vector<std::string> host_names(Communicator& world) {
  std::array<char, kNameBytes> mine{};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<char> all(kNameBytes * static_cast<size_t>(world.size()));
  const auto bytes = static_cast<int64_t>(all.size());
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_gather({all.data(), DType::U8, {bytes}}, {mine.data(), DType::U8, {kNameBytes}}, stream);
  std::vector<std::string> names;
  for (size_t at = 0; at < all.size(); at += kNameBytes) names.emplace_back(&all[at]);
  return names;
}

// Ranks that follow each other on the data axis and live on one node: the length of each such run, for the
// ranks with these coordinates on the other axes.
std::vector<int> runs_on_nodes(const MeshSizes& sizes, MeshCoords at, std::span<const int> nodes) {
  std::vector<int> runs;
  int last = -1;
  for (at.dp = 0; at.dp < sizes.dp; ++at.dp) {
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
  for (const std::string& name : host_names(world))
    nodes.push_back(known.emplace(name, static_cast<int>(known.size())).first->second);
  return nodes;
}

std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(ranks_per_node ? rank / *ranks_per_node : 0);
  return nodes;
}

int zero_group_size(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes) {
  if (!groups_follow_nodes(config)) return given_group_size(config).value_or(sizes.dp);
  const int group = runs_on_nodes(sizes, {}, nodes).front();
  MeshCoords at;
  for (at.pp = 0; at.pp < sizes.pp; ++at.pp)
    for (at.tp = 0; at.tp < sizes.tp; ++at.tp)
      for (const int run : runs_on_nodes(sizes, at, nodes))
        if (run != group)
          bad_input(
              "--zero-group-size node: some nodes have {} of the data-parallel ranks that could share, "
              "others {}; "
              "give the same number of ranks to every node, a multiple of tensor {} ranks, or a number for "
              "--zero-group-size",
              group, run, sizes.tp);
  if (group == 1 && sizes.dp > 1)
    bad_input(
        "--zero-group-size node: every node has one data-parallel rank of a kind, so nothing would be shared "
        "out; leave it out, or give fewer tensor ranks than a node has ranks");
  return group;
}

}  // namespace trifold
