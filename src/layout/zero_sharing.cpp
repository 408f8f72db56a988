#include "layout/zero_sharing.h"

#include "config/subjects/zero.h"
#include "core/error.h"
#include "data_parallel/flat_layout.h"
#include "mesh/mesh_sizes.h"

namespace trifold {

namespace {

// The lengths of the runs of consecutive ranks on the data axes that are on one node, for the ranks with
// these coordinates on the other axes.
std::vector<int> runs_on_nodes(const MeshSizes& sizes, MeshCoords at, std::span<const int> nodes) {
  std::vector<int> runs;
  int last = -1;
  for (int place = 0; place < sizes.ranks(kDataAxes); ++place) {
    at[Axis::Cp] = place % sizes[Axis::Cp];
    at[Axis::Dp] = place / sizes[Axis::Cp];
    const int node = nodes.empty() ? 0 : nodes[static_cast<size_t>(rank_of(at, sizes))];
    if (runs.empty() || node != last) runs.push_back(0);
    ++runs.back();
    last = node;
  }
  return runs;
}

// The number of data-parallel ranks in a sharding group.
int group_size(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes) {
  if (!config.zero_group_size || !config.zero_group_size->follows_nodes())
    return given_group_size(config).value_or(sizes.ranks(kDataAxes));
  const int group = runs_on_nodes(sizes, {}, nodes).front();
  MeshCoords at;
  for (at[Axis::Pp] = 0; at[Axis::Pp] < sizes[Axis::Pp]; ++at[Axis::Pp])
    for (at[Axis::Tp] = 0; at[Axis::Tp] < sizes[Axis::Tp]; ++at[Axis::Tp])
      for (const int run : runs_on_nodes(sizes, at, nodes))
        if (run != group)
          bad_input(
              "--zero-group-size node: some nodes have {} data-parallel ranks of a group, others {}; "
              "start the same number of ranks on every node, a multiple of tensor {} ranks, or a number "
              "for --zero-group-size",
              group, run, sizes[Axis::Tp]);
  if (group == 1 && sizes.ranks(kDataAxes) > 1)
    bad_input(
        "--zero-group-size node: every node has one data-parallel rank of each group, so nothing would be "
        "sharded; leave it out, or give fewer tensor ranks than a node has ranks");
  return group;
}

}  // namespace

std::vector<int> planned_nodes(int ranks, const std::optional<int>& ranks_per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(ranks_per_node ? rank / *ranks_per_node : 0);
  return nodes;
}

ZeroSharing zero_sharing(const ZeroConfig& config, const MeshSizes& sizes, std::span<const int> nodes) {
  return {config.zero_stage, group_size(config, sizes, nodes), sizes.ranks(kDataAxes)};
}

ZeroSharing zero_sharing(const RunSpec& run) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  // The nodes of thousands of ranks are listed only if needed.
  if (!run.zero.zero_group_size || !run.zero.zero_group_size->follows_nodes())
    return zero_sharing(run.zero, sizes, {});
  return zero_sharing(run.zero, sizes, planned_nodes(sizes.ranks(), run.mesh.ranks_per_node));
}

int64_t unit_elements(const ZeroConfig& config) {
  return config.zero_min_unit_params.value_or(kUnitElements);
}

}  // namespace trifold
