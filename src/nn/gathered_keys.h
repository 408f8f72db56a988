// Attention over sequences whose positions are cut over the context-parallel ranks: each rank has the queries
// of its own positions and gathers the keys and values of all of them, in the order of the positions, before
// the product (Llama 3, arXiv 2407.21783, section 3.3.2). So documents and dropout are what they are on one
// rank, and so are the bits of the output and of the gradients of queries. Going back keys and values are
// gathered once more, which is why only those of the own positions are kept, and the gradients of all of them
// are summed over the ranks, of which each takes its own positions', in the type that sums have.
#pragma once

#include "nn/layer.h"

namespace trifold {

class GatheredKeys {
 public:
  // Of packed projections that have their keys and values in `columns` columns from `first` on.
  GatheredKeys(const Mesh& mesh, int64_t first, int64_t columns)
      : parts_(mesh.size(Axis::Cp)), part_(mesh.coord(Axis::Cp)), first_(first), columns_(columns) {}

  // Of all positions, [samples * positions, columns], in run.scratch. `packed` has the rows here.
  Tensor gather(Run& run, Tensor packed) const;
  // Where gradients of these are made: in accumulate_type, in run.scratch.
  Tensor take_gradients(Run& run) const;
  // Sums them over the ranks into the columns of `dpacked`.
  void scatter(Run& run, Tensor dpacked, Tensor gradients) const;

 private:
  int parts_, part_;
  int64_t first_, columns_;
};

}  // namespace trifold
