// DataGroups: the communicators over which gradients and slices of parameters are sent, one for each set of ranks in
// the parameters' ShardSpecs.
//
// The ranks along a parameter's data axes are cut into sharding groups. Each rank of a group holds one slice of the
// sharded state; ranks with the same index in different groups hold the same slice. By default there is one group of
// all data-parallel ranks. With one group per node, traffic inside a node is a reduce-scatter and an all-gather, and
// only slices are sent between nodes: hierarchical reduction and, with sharded parameters, hybrid sharding.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "mesh/mesh.h"
#include "nn/param.h"

namespace trifold {

class DataGroups {
 public:
  // Collective over the mesh's world. `group` consecutive ranks on the data axes form a sharding group; it must divide
  // their number. `mesh` must outlive this object. `params` is the list of the whole model.
  DataGroups(const Mesh& mesh, int group, const ParamList& params);

  // For gradients summed over the axes `data`: this rank's sharding group, and the ranks that hold the same slice as
  // this one. Each communicator may be used on one stream at a time.
  Communicator& shard(AxisSet data = kDataAxes) const { return *of(data).shard; }
  Communicator& replicas(AxisSet data = kDataAxes) const { return *of(data).replicas; }
  int slices(AxisSet data = kDataAxes) const { return shard(data).size(); }
  int slice(AxisSet data = kDataAxes) const { return shard(data).rank(); }
  // The ranks of a parameter's ShardSpec::summed_first, on a communicator that computation does not use.
  Communicator& summed_first(const RankSet& ranks) const;

 private:
  struct Groups {
    std::unique_ptr<Communicator> shard, replicas;
  };
  struct First {
    RankSet ranks;
    std::unique_ptr<Communicator> comm;
  };

  void add(const Mesh& mesh, AxisSet data, int group);
  void add_first(const Mesh& mesh, const RankSet& ranks);
  const Groups& of(AxisSet data) const;

  std::map<AxisSet, Groups> groups_;
  std::vector<First> first_;
};

}  // namespace trifold
