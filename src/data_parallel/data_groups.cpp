#include "data_parallel/data_groups.h"

#include <algorithm>

#include "data_parallel/flat_layout.h"

namespace trifold {

// Every rank iterates over the same list of parameters, so all split communicators in the same order.
DataGroups::DataGroups(const Mesh& mesh, int group, const ParamList& params) {
  add(mesh, kDataAxes, group);
  for (const ParamSpec& spec : params.specs()) {
    add(mesh, spec.shard.data_axes(), group);
    add_first(mesh, spec.shard.summed_first());
  }
}

void DataGroups::add(const Mesh& mesh, AxisSet data, int group) {
  if (groups_.contains(data)) return;
  Communicator& axis = mesh.comm(data);
  const int sharing = slices_of(data, mesh.sizes(), group);
  check(sharing >= 1 && axis.size() % sharing == 0, "{} data-parallel ranks cannot be cut into groups of {}",
        axis.size(), sharing);
  Groups& groups = groups_[data];
  groups.shard = axis.split_by([&](int rank) { return SplitPlace{rank / sharing, rank}; }, data.bits());
  groups.replicas = axis.split_by([&](int rank) { return SplitPlace{rank % sharing, rank}; }, data.bits());
}

void DataGroups::add_first(const Mesh& mesh, const RankSet& ranks) {
  if (ranks.axes.empty()) return;
  for (const First& known : first_)
    if (known.ranks == ranks) return;
  Communicator& axis = mesh.comm(ranks.axes);
  const int copies = ranks.tensor_copies == 0 ? axis.size() : ranks.tensor_copies;
  check(axis.size() % copies == 0, "{} tensor-parallel ranks cannot be cut into groups of {}", axis.size(),
        copies);
  first_.push_back({ranks, axis.split_by(
                               [&](int rank) {
                                 return SplitPlace{rank / copies, rank};
                               },
                               ranks.axes.bits())});
}

const DataGroups::Groups& DataGroups::of(AxisSet data) const {
  const auto found = groups_.find(data);
  check(found != groups_.end(), "no parameter is summed over these data axes");
  return found->second;
}

Communicator& DataGroups::summed_first(const RankSet& ranks) const {
  for (const First& known : first_)
    if (known.ranks == ranks) return *known.comm;
  fail("no parameter is summed over these ranks first");
}

}  // namespace trifold
