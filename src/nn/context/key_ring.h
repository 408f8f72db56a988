// Attention over sequences whose positions are cut over the context-parallel ranks, in as many steps as there are
// ranks: in each, a rank sees the keys and values of one rank's positions, its own first, and while it computes
// with them sends them on and receives the next, so that they travel around a ring (Liu et al., "Ring Attention", arXiv
// 2310.01889). Outputs over the keys seen so far are merged by the log of their sums, in accumulate_type, so that
// nothing is rounded in between; in 16 bits they are rounded once, at the end. In backward keys and values travel once
// more. The gradients of a rank's keys follow them one step later, in accumulate_type too; each rank that they pass
// adds its part, and their owner adds the last. So all sums have one order, that of the ring, but another one on each
// rank: unlike with gathered keys the bits are not those of one rank.
#pragma once

#include "nn/layer.h"

namespace trifold {

class KeyRing {
 public:
  // For packed projections [R, `first` columns of queries, then `columns` of keys and values].
  KeyRing(const Mesh& mesh, int64_t first, int64_t columns)
      : parts_(mesh.size(Axis::Cp)), part_(mesh.coord(Axis::Cp)), first_(first), columns_(columns) {}

  // `how` is that of the queries here; its keys are filled in. out [R, first], lse of accumulate_type.
  void forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention how) const;
  // Assigns dpacked. `out` and `lse` are what forward made.
  void backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                Attention how) const;

 private:
  SequenceRows keys_at(const Run& run, int step) const;
  Tensor take_keys(Run& run, DType dtype, Tensor packed) const;
  // Sends tensors to the next rank and receives as many from the one before, behind what computes meanwhile. The
  // second pair may be empty.
  void pass_on(Run& run, Tensor sent, Tensor received, Tensor also_sent = {},
               Tensor also_received = {}) const;
  // Rounds a gradient into columns of dpacked.
  void store(Run& run, Tensor dpacked, int64_t column, Tensor gradient) const;

  int parts_, part_;
  int64_t first_, columns_;
};

}  // namespace trifold
