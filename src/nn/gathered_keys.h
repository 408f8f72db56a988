// Attention over sequences whose positions are cut over the context-parallel ranks: each rank has the queries
// of its own positions and gathers the keys and values of all positions, in the order of the positions,
// before the product (Llama 3, arXiv 2407.21783, section 3.3.2). So documents and dropout are the same as on
// one rank, and so are the bits of the output and of the gradients of queries. Backward gathers keys and
// values again, so only those of the rank's own positions are kept. The gradients of all keys and values are
// summed over the ranks in accumulate_type, and each rank keeps those of its own positions.
#pragma once

#include "nn/layer.h"

namespace trifold {

class GatheredKeys {
 public:
  // For packed projections whose keys and values are in `columns` columns from `first` on.
  GatheredKeys(const Mesh& mesh, int64_t first, int64_t columns)
      : parts_(mesh.size(Axis::Cp)), part_(mesh.coord(Axis::Cp)), first_(first), columns_(columns) {}

  // The keys and values of all positions, [samples * positions, columns], in run.scratch. `packed` has this
  // rank's rows.
  Tensor gather(Run& run, Tensor packed) const;
  // Memory for the gradients of all keys and values: in accumulate_type, in run.scratch.
  Tensor take_gradients(Run& run) const;
  // Sums the gradients over the ranks, and writes those of this rank's rows into the columns of `dpacked`.
  void scatter(Run& run, Tensor dpacked, Tensor gradients) const;

 private:
  int parts_, part_;
  int64_t first_, columns_;
};

}  // namespace trifold
