#include "data_parallel/data_groups.h"

namespace trifold {

DataGroups::DataGroups(const Mesh& mesh, int group, int copies) {
  Communicator& axis = mesh.comm({Axis::Dp});
  check(group >= 1 && axis.size() % group == 0, "{} data-parallel ranks cannot be cut into groups of {}",
        axis.size(), group);
  shard_ = axis.split(axis.rank() / group, axis.rank());
  replicas_ = axis.split(axis.rank() % group, axis.rank());
  Communicator& tensor = mesh.comm({Axis::Tp});
  tensor_ = tensor.split(0, tensor.rank());
  check(copies >= 1 && tensor.size() % copies == 0,
        "{} tensor-parallel ranks cannot be cut into groups of {}", tensor.size(), copies);
  copies_ = tensor.split(tensor.rank() / copies, tensor.rank());
}

}  // namespace trifold
