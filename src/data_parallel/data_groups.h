// DataGroups: the data axis of a mesh, cut into sharding groups. The ranks of a group share out what is
// sharded; ranks at the same place of different groups hold the same slices. With one group (the default) all
// data-parallel ranks share; with a group for each node the traffic inside a node is a reduce-scatter and an
// all-gather, and only slices cross between nodes: hierarchical reduction, and with sharded parameters what
// is known as hybrid sharding.
#pragma once

#include <memory>

#include "mesh/mesh.h"

namespace trifold {

class DataGroups {
 public:
  // Collective over the mesh's world. `group` ranks that follow each other on the data axis share; it must
  // divide the size of the axis. `copies` ranks that follow each other on the tensor axis hold the same
  // pieces of some tensors (ShardSpec::tensor_copies). References into `mesh` are kept.
  DataGroups(const Mesh& mesh, int group, int copies = 1);

  // The ranks that share slices with this one, and those that hold the same slice. For one stream at a time.
  Communicator& shard() const { return *shard_; }
  Communicator& replicas() const { return *replicas_; }
  // The ranks of the tensor axis, apart from the communicator that computation uses.
  Communicator& tensor() const { return *tensor_; }
  // Those of them that hold the same pieces as this one.
  Communicator& copies() const { return *copies_; }
  int slices() const { return shard_->size(); }
  int slice() const { return shard_->rank(); }

 private:
  std::unique_ptr<Communicator> shard_, replicas_, tensor_, copies_;
};

}  // namespace trifold
